//! scratch
use mprdma_hw::prelude::*;

#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct Stage {
    pub a: Bits<8>,
    pub valid: Bit,
}

block! {
    /// Counts.
    pub struct Counter[const N: usize][N] {
        in { clock: Clock, reset: Bit, step: Bits<N> }
        out { count: Bits<N>, v: Bit }
        local { sum: Bits<N> }
        reg { total: Bits<N> = bits(3), r0: Stage }
        pipe { p: Bits<N> }
        konst { limit: Bits<N> = bits(100) }
        sub { r: [Reg<Bits<N>>; 2] }
    }
}
impl<const N: usize> Logic for Counter<N> {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, total, r0, r[0], r[1], p);
        comment!("T0: sum");
        self.sum.next = self.total.q.val() + self.step.val();
        if self.total.q.val() < self.limit.val() {
            self.total.d.next = self.sum.val();
        }
        self.r0.d.next.a = 1.into();
        self.r[0].d.next = self.total.q.val();
        self.r[1].d.next = self.r[0].q.val();
        self.p.d.next = self.r[1].q.val();
        self.v.next = self.r0.q.val().valid;
        self.count.next = self.p.q.val();
    }
}
#[test]
fn counter() {
    let mut u = Counter::<24>::default();
    u.connect_all();
    check_all(&u).unwrap();
    println!("{}", mprdma_hw::verilog::generate(&u, "counter").unwrap());
}
#[test]
fn run() {
    use mprdma_hw::cosim::*;
    let mut c = Cosim::new(Counter::<24>::default(), "counter", |b, l| {
        b.clock.next = l.into()
    })
    .unwrap();
    for i in 0..200u64 {
        c.cycle(|b| {
            b.reset.next = i % 50 == 40;
            b.step.next = (i * 7 % 23).into();
        })
        .unwrap();
    }
    c.verify().unwrap();
    println!("{:?}", c.replay_icarus().unwrap());
    let mut u = Counter::<24>::default();
    u.connect_all();
    let mut v = VerilatedBlock::new(&u, "counter").unwrap();
    let f = v.inputs().clone();
    let t = std::time::Instant::now();
    let o = v.cycles(&vec![f.clone(); 1_000_000]).unwrap();
    println!("{} {:?}", o.len(), t.elapsed());
    let t = std::time::Instant::now();
    for _ in 0..10000 {
        v.cycle().unwrap();
    }
    println!("{:?}", t.elapsed());
}

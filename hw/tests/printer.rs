//! scratch
use mprdma_hw::prelude::*;

#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct Stage { pub a: Bits<8>, pub valid: Bit }

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
    println!("{:#?}", u.hdl());
}

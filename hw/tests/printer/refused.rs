//! What the printer refuses, and that the error names the place.

use mprdma_hw::cosim::{BuildOptions, Cosim, VerilatedBlock};
use mprdma_hw::prelude::*;
use mprdma_hw::verilog::{generate, ports, PrintError, Problem};

/// Prints a connected block and returns the error.
fn refuse<B: Block>(mut block: B) -> PrintError {
    block.connect_all();
    match generate(&block, "top") {
        Err(error) => error,
        Ok(verilog) => panic!("printed:\n{verilog}"),
    }
}

#[derive(LogicState, Copy, Clone, Debug, PartialEq)]
#[allow(dead_code)]
enum State {
    Idle,
    Busy,
    Done,
}
use State::Busy;

#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
struct Pair {
    x: Bits<4>,
    y: Bits<4>,
}

block! {
    struct Pass {
        in { x: Bits<8> }
        out { y: Bits<8> }
    }
}

impl Logic for Pass {
    #[hdl_gen]
    fn update(&mut self) {
        self.y.next = self.x.val();
    }
}

const LIMIT: u64 = 5;
const INDEX: usize = 2;

/// Tests of one kernel each, with `o` and the extra fields to drive. The error must have the path `top` and the given
/// problem.
macro_rules! refused {
    ($($name:ident [$($extra:tt)*] { $($kernel:tt)* } => $problem:pat,)*) => {$(
        #[test]
        fn $name() {
            block! {
                struct Kernel {
                    in { clock: Clock, reset: Bit, a: Bits<8>, b: Bits<8>, f: Bit, sel: Bits<2>, state: State }
                    out { o: Bits<8> }
                    port { lanes: [Signal<In, Bits<8>>; 4] }
                    $($extra)*
                }
            }
            impl Logic for Kernel {
                $($kernel)*
            }
            let error = refuse(Kernel::default());
            assert!(matches!(error.problem, $problem), "{error:?}");
            assert_eq!(error.path, "top");
        }
    )*};
}

refused! {
    rust_const [] {
        #[hdl_gen]
        fn update(&mut self) {
            self.o.next = self.a.val() + LIMIT;
        }
    } => Problem::UnknownName(_),
    const_as_position [] {
        #[hdl_gen]
        fn update(&mut self) {
            self.o.next = self.a.val().get_bits::<8>(INDEX);
        }
    } => Problem::UnknownName(_),
    const_as_array_index [] {
        #[hdl_gen]
        fn update(&mut self) {
            self.o.next = self.lanes[INDEX].val();
        }
    } => Problem::BadIndex(_),
    variable_array_index [] {
        #[hdl_gen]
        fn update(&mut self) {
            self.o.next = self.lanes[self.sel.val().index()].val();
        }
    } => Problem::BadIndex(_),
    negative_array_index [] {
        #[hdl_gen]
        fn update(&mut self) {
            self.o.next = self.a.val();
            for i in 0..2 { self.o.next = self.lanes[i - 1].val(); }
        }
    } => Problem::BadIndex(_),
    missing_array_element [] {
        #[hdl_gen]
        fn update(&mut self) {
            self.o.next = self.a.val();
            for i in 0..5 { self.o.next = self.lanes[i].val(); }
        }
    } => Problem::UnknownName(_),
    imported_enum_value [] {
        #[hdl_gen]
        fn update(&mut self) {
            self.o.next = self.a.val();
            if self.state.val() == Busy { self.o.next = self.b.val(); }
        }
    } => Problem::UnknownName(_),
    imported_match_arm [] {
        #[hdl_gen]
        fn update(&mut self) {
            match self.state.val() { Busy => self.o.next = self.a.val(), _ => self.o.next = self.b.val() }
        }
    } => Problem::MatchArm(_),
    binding_match_arm [] {
        #[hdl_gen]
        fn update(&mut self) {
            match self.sel.val().index() { 0 => self.o.next = self.a.val(), _other => self.o.next = self.b.val() }
        }
    } => Problem::MatchArm(_),
    repeated_match_arm [] {
        #[hdl_gen]
        fn update(&mut self) {
            match self.sel.val().index() { 0 => self.o.next = self.a.val(), 0x0 => self.o.next = self.b.val(), _ => self.o.next = self.a.val() }
        }
    } => Problem::DuplicateArm(_),
    latch_in_if [] {
        #[hdl_gen]
        fn update(&mut self) {
            if self.f.val() { self.o.next = self.a.val(); }
        }
    } => Problem::Latch(_),
    latch_in_match_arm [] {
        #[hdl_gen]
        fn update(&mut self) {
            match self.sel.val().index() { 0 => self.o.next = self.a.val(), 1 => self.o.next = self.b.val(), _ => {} }
        }
    } => Problem::Latch(_),
    latch_in_field [local { pair: Pair }] {
        #[hdl_gen]
        fn update(&mut self) {
            self.o.next = self.a.val();
            self.pair.next.x = bits::<4>(3);
        }
    } => Problem::Latch(_),
    latch_in_child_input [sub { child: Pass }] {
        #[hdl_gen]
        fn update(&mut self) {
            self.o.next = self.child.y.val();
            if self.f.val() { self.child.x.next = self.a.val(); }
        }
    } => Problem::Latch(_),
    field_before_write [local { pair: Pair }] {
        #[hdl_gen]
        fn update(&mut self) {
            self.pair.next.x = bits::<4>(3);
            self.o.next = bit_cast::<8, 4>(self.pair.val().y);
            self.pair.next.y = bits::<4>(3);
        }
    } => Problem::ReadBeforeWrite(_),
    never_assigned [] {
        #[hdl_gen]
        fn update(&mut self) {
        }
    } => Problem::NeverAssigned(_),
    child_input_never_assigned [sub { child: Pass }] {
        #[hdl_gen]
        fn update(&mut self) {
            self.o.next = self.child.y.val();
        }
    } => Problem::NeverAssigned(_),
    local_before_write [local { l: Bits<8> }] {
        #[hdl_gen]
        fn update(&mut self) {
            self.o.next = self.l.val();
            self.l.next = self.a.val();
        }
    } => Problem::ReadBeforeWrite(_),
    output_feeds_itself [] {
        #[hdl_gen]
        fn update(&mut self) {
            self.o.next = self.o.val() + 1;
        }
    } => Problem::ReadBeforeWrite(_),
    written_on_one_path_only [local { l: Bits<8> }] {
        #[hdl_gen]
        fn update(&mut self) {
            if self.f.val() { self.l.next = self.a.val(); }
            self.o.next = self.l.val();
            self.l.next = self.a.val();
        }
    } => Problem::ReadBeforeWrite(_),
    child_input_feeds_itself [sub { child: Pass }] {
        #[hdl_gen]
        fn update(&mut self) {
            self.o.next = self.child.y.val();
            self.child.x.next = self.child.x.val() + 1;
        }
    } => Problem::ReadsOwnInput(_),
    literal_too_big [] {
        #[hdl_gen]
        fn update(&mut self) {
            self.o.next = self.a.val() + 300;
        }
    } => Problem::LiteralTooBig { .. },
    literal_too_big_compare [] {
        #[hdl_gen]
        fn update(&mut self) {
            self.o.next = self.a.val();
            if self.a.val() == 256 { self.o.next = self.b.val(); }
        }
    } => Problem::LiteralTooBig { .. },
    literal_too_big_assigned [] {
        #[hdl_gen]
        fn update(&mut self) {
            self.o.next = 256.into();
        }
    } => Problem::LiteralTooBig { .. },
    bit_past_top [] {
        #[hdl_gen]
        fn update(&mut self) {
            self.o.next = self.a.val();
            if self.a.val().get_bit(8) { self.o.next = self.b.val(); }
        }
    } => Problem::SliceRange { .. },
    replaced_bit_past_top [] {
        #[hdl_gen]
        fn update(&mut self) {
            self.o.next = self.a.val().replace_bit(8, true);
        }
    } => Problem::SliceRange { .. },
    slice_from_past_top [] {
        #[hdl_gen]
        fn update(&mut self) {
            self.o.next = self.a.val().get_bits::<8>(9);
        }
    } => Problem::SliceRange { .. },
    literal_shifted_by_signal [] {
        #[hdl_gen]
        fn update(&mut self) {
            self.o.next = self.a.val();
            if (1_u64 << self.a.val()) == bits::<64>(1) { self.o.next = self.b.val(); }
        }
    } => Problem::UnsizedLiteral(_),
    clock_as_data [in { other_clock: Clock }] {
        #[hdl_gen]
        fn update(&mut self) {
            self.o.next = self.a.val();
            if self.clock.val() == self.other_clock.val() { self.o.next = self.b.val(); }
        }
    } => Problem::ClockAsData(_),
    conditional_clock [reg { r: Bits<8> }] {
        #[hdl_gen]
        fn update(&mut self) {
            dff_setup!(self, clock, r);
            self.o.next = self.a.val();
            if self.f.val() { self.r.clock.next = self.clock.val(); }
        }
    } => Problem::Clock(_),
    missing_clock [pipe { r: Bits<8> }] {
        #[hdl_gen]
        fn update(&mut self) {
            self.o.next = self.r.q.val();
            self.r.d.next = self.a.val();
        }
    } => Problem::NeverAssigned(_),
    write_to_input [] {
        #[hdl_gen]
        fn update(&mut self) {
            self.o.next = self.a.val();
            self.a.next = self.b.val();
        }
    } => Problem::NotATarget(_),
    write_to_child_output [sub { child: Pass }] {
        #[hdl_gen]
        fn update(&mut self) {
            self.o.next = self.a.val();
            self.child.y.next = self.b.val();
            self.child.x.next = self.a.val();
        }
    } => Problem::NotATarget(_),
}

#[test]
fn errors_name_the_instance() {
    block! {
        struct Bad {
            in { x: Bits<8> }
            out { y: Bits<8> }
        }
    }
    impl Logic for Bad {
        #[hdl_gen]
        fn update(&mut self) {
            if self.x.val().any() {
                self.y.next = self.x.val();
            }
        }
    }
    block! {
        struct Middle {
            in { x: Bits<8> }
            out { y: Bits<8> }
            sub { bad: [Bad; 2] }
        }
    }
    impl Logic for Middle {
        #[hdl_gen]
        fn update(&mut self) {
            self.bad[0].x.next = self.x.val();
            self.bad[1].x.next = self.bad[0].y.val();
            self.y.next = self.bad[1].y.val();
        }
    }
    block! {
        struct Top {
            in { x: Bits<8> }
            out { y: Bits<8> }
            sub { middle: Middle }
        }
    }
    impl Logic for Top {
        #[hdl_gen]
        fn update(&mut self) {
            self.middle.x.next = self.x.val();
            self.y.next = self.middle.y.val();
        }
    }
    assert_eq!(
        refuse(Top::default()).to_string(),
        "top.middle.bad_0: some path leaves `y` unassigned (latch)"
    );
}

#[test]
fn keywords_and_collisions() {
    block! {
        struct Keyword {
            in { bit: Bits<8> }
            out { y: Bits<8> }
        }
    }
    impl Logic for Keyword {
        #[hdl_gen]
        fn update(&mut self) {
            self.y.next = self.bit.val();
        }
    }
    assert_eq!(
        refuse(Keyword::default()).problem,
        Problem::Keyword("bit".into())
    );

    block! {
        struct Collision {
            in { x: Bits<8> }
            out { y: Bits<8> }
            local { child_x: Bits<8> }
            sub { child: Pass }
        }
    }
    impl Logic for Collision {
        #[hdl_gen]
        fn update(&mut self) {
            self.child_x.next = self.x.val();
            self.child.x.next = self.child_x.val();
            self.y.next = self.child.y.val();
        }
    }
    assert!(matches!(
        refuse(Collision::default()).problem,
        Problem::NameCollision { .. }
    ));
}

#[test]
fn registers_need_their_reset() {
    block! {
        struct NoReset {
            in { clock: Clock, x: Bits<8> }
            out { y: Bits<8> }
            reg { r: Bits<8> }
        }
    }
    impl Logic for NoReset {
        #[hdl_gen]
        fn update(&mut self) {
            clock!(self, clock, r);
            self.r.d.next = self.x.val();
            self.y.next = self.r.q.val();
        }
    }
    assert_eq!(
        refuse(NoReset::default()).problem,
        Problem::Reset("r".into())
    );
}

#[test]
fn blocks_without_a_kernel() {
    #[derive(LogicBlock, Default)]
    struct Silent {
        pub x: Signal<In, Bits<8>>,
        pub y: Signal<Out, Bits<8>>,
    }
    impl Logic for Silent {
        fn update(&mut self) {
            self.y.next = self.x.val();
        }
    }
    assert!(matches!(
        refuse(Silent::default()).problem,
        Problem::Unsupported(_)
    ));
}

/// The comparison itself can fail: the wrong Verilog is noticed.
#[test]
fn wrong_verilog_is_noticed() {
    let mut cosim = Cosim::new(Pass::default(), "pass", |_, _| {}).unwrap();
    for i in 0..100_u64 {
        cosim.cycle(|block| block.x.next = i.into()).unwrap();
    }
    cosim.verify().unwrap();
    let wrong = cosim
        .verilog()
        .replace("assign y = x;", "assign y = x & 8'hf7;");
    assert_ne!(wrong, cosim.verilog());
    let replay = cosim.replay_text(&wrong).unwrap();
    assert!(replay.bad_steps > 40);
    assert_eq!(replay.mismatches[0].port, "y");
    assert_eq!(replay.mismatches[0].expected, "8");
    assert_eq!(replay.mismatches[0].got, "0");
    assert!(replay.check("pass").is_err());
}

/// Text that does not compile is an error with the tool's words.
#[test]
fn broken_verilog_is_an_error() {
    let error = VerilatedBlock::from_verilog(
        "module broken (input wire a, output wire b);\n  assign b = c;\nendmodule\n",
        "broken",
        &ports(&Pass::default()),
        &BuildOptions::default(),
    )
    .err()
    .expect("no model");
    assert!(error.to_string().contains("verilator failed"), "{error}");
}

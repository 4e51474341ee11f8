//! The two flip-flop leaves every kernel block uses.
//!
//! [`Reg`] has a synchronous reset, [`Pipe`] has none. Both have the ports `clock`, `d` and `q`, so a kernel treats
//! them alike; `Reg` has `reset` in addition. The Verilog printer merges them into the clocked block of the module
//! that holds them.

use rust_hdl_core::prelude::*;

/// Marks the Verilog text of a register leaf; the printer looks for it.
pub(crate) const REGISTER_MARK: &str = "// register leaf: ";

/// A register with a synchronous reset: control state, valid bits, counters.
///
/// On a rising `clock`, `q` becomes the initial value while `reset` is high and `d` otherwise. Latency: one cycle.
/// The value at power-up is the initial value too.
#[derive(Clone, Debug, LogicBlock)]
pub struct Reg<T: Synth> {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub d: Signal<In, T>,
    pub q: Signal<Out, T>,
    _init: T,
}

impl<T: Synth> Reg<T> {
    /// A register that starts and resets to `init`.
    pub fn new(init: T) -> Self {
        Self {
            clock: Signal::default(),
            reset: Signal::default(),
            d: Signal::default(),
            q: Signal::new_with_default(init),
            _init: init,
        }
    }

    /// Used by `dff_setup!`: drives `reset` in the simulator.
    pub fn drive_reset(&mut self, reset: Bit) {
        self.reset.next = reset;
    }
}

impl<T: Synth> Default for Reg<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: Synth> Logic for Reg<T> {
    fn update(&mut self) {
        if self.clock.pos_edge() {
            self.q.next = if self.reset.val() {
                self._init
            } else {
                self.d.val()
            };
        }
    }

    fn connect(&mut self) {
        self.q.connect();
        // `dff_setup!` drives this input by a method call, which the kernel macro does not see. The printer refuses
        // a `Reg` that neither `dff_setup!` nor an assignment connects.
        self.reset.connect();
    }

    fn hdl(&self) -> Verilog {
        let init = literal(&self._init.verilog(), T::BITS);
        Verilog::Custom(format!(
            "{REGISTER_MARK}{init}\n    initial q = {init};\n    always @(posedge clock) begin\n        \
             if (reset) q <= {init};\n        else q <= d;\n    end\n"
        ))
    }

    fn timing(&self) -> Vec<TimingInfo> {
        vec![TimingInfo {
            name: "reg".into(),
            clock: "clock".into(),
            inputs: vec!["d".into(), "reset".into()],
            outputs: vec!["q".into()],
        }]
    }
}

/// A register without a reset: wide data that travels beside a valid bit.
///
/// On a rising `clock`, `q` becomes `d`. Latency: one cycle. The value at power-up is the initial value.
#[derive(Clone, Debug, LogicBlock)]
pub struct Pipe<T: Synth> {
    pub clock: Signal<In, Clock>,
    pub d: Signal<In, T>,
    pub q: Signal<Out, T>,
    _init: T,
}

impl<T: Synth> Pipe<T> {
    /// A register that starts at `init`.
    pub fn new(init: T) -> Self {
        Self {
            clock: Signal::default(),
            d: Signal::default(),
            q: Signal::new_with_default(init),
            _init: init,
        }
    }

    /// Used by `dff_setup!`, which treats both kinds of register alike; this kind ignores the reset.
    pub fn drive_reset(&mut self, _reset: Bit) {}
}

impl<T: Synth> Default for Pipe<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: Synth> Logic for Pipe<T> {
    fn update(&mut self) {
        if self.clock.pos_edge() {
            self.q.next = self.d.val();
        }
    }

    fn connect(&mut self) {
        self.q.connect();
    }

    fn hdl(&self) -> Verilog {
        let init = literal(&self._init.verilog(), T::BITS);
        Verilog::Custom(format!(
            "{REGISTER_MARK}{init}\n    initial q = {init};\n    always @(posedge clock) q <= d;\n"
        ))
    }

    fn timing(&self) -> Vec<TimingInfo> {
        vec![TimingInfo {
            name: "pipe".into(),
            clock: "clock".into(),
            inputs: vec!["d".into()],
            outputs: vec!["q".into()],
        }]
    }
}

/// A sized Verilog literal: an enum value reports 64 bits by itself, so the width comes from the type.
fn literal(value: &VerilogLiteral, bits: usize) -> String {
    let text = format!("{value:x}");
    let digits = text.split_once("'h").map_or("0", |(_, digits)| digits);
    format!("{bits}'h{digits}")
}

/// Carries the Rust name of the block `B` to the Verilog printer, which names the module after it.
///
/// It has no signals and takes no space. Declare it as a field `block_name: NameOf<Self type>`; `block!` adds it.
pub struct NameOf<B>(std::marker::PhantomData<fn() -> B>);

/// Prefix of the pseudo namespace by which [`NameOf`] passes a name through a [`Probe`].
pub(crate) const NAME_MARK: char = '@';

impl<B> Default for NameOf<B> {
    fn default() -> Self {
        Self(std::marker::PhantomData)
    }
}

impl<B> Logic for NameOf<B> {
    fn update(&mut self) {}
}

impl<B> Block for NameOf<B> {
    fn connect_all(&mut self) {}

    fn update_all(&mut self) {}

    fn has_changed(&self) -> bool {
        false
    }

    fn accept(&self, _name: &str, probe: &mut dyn Probe) {
        let name = format!("{NAME_MARK}{}", std::any::type_name::<B>());
        probe.visit_start_namespace(&name, self);
        probe.visit_end_namespace(&name, self);
    }
}

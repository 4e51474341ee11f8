//! Clock-domain crossing.

use super::ram::range;
use crate::prelude::*;

/// Two flip-flops that bring `d` into the domain of `clock`.
///
/// Latency: 2 cycles. More than one bit may cross only if at most one bit changes at a time (gray code). The flip-flops
/// carry `ASYNC_REG` and start at zero; they have no reset, so the source decides the value.
#[derive(LogicBlock)]
pub struct Synchronizer<const N: usize> {
    pub clock: Signal<In, Clock>,
    pub d: Signal<In, Bits<N>>,
    pub q: Signal<Out, Bits<N>>,
    _first: Bits<N>,
    block_name: NameOf<Synchronizer<N>>,
}

impl<const N: usize> Default for Synchronizer<N> {
    fn default() -> Self {
        Self {
            clock: Signal::default(),
            d: Signal::default(),
            q: Signal::default(),
            _first: Bits::default(),
            block_name: NameOf::default(),
        }
    }
}

impl<const N: usize> Logic for Synchronizer<N> {
    fn update(&mut self) {
        if self.clock.pos_edge() {
            self.q.next = self._first;
            self._first = self.d.val();
        }
    }

    fn connect(&mut self) {
        self.q.connect();
    }

    fn hdl(&self) -> Verilog {
        let range = range(N);
        Verilog::Custom(format!(
            "    (* ASYNC_REG = \"TRUE\" *) reg {range}first;\n    (* ASYNC_REG = \"TRUE\" *) reg {range}second;\n    \
             initial first = 0;\n    initial second = 0;\n    always @(posedge clock) begin\n        first <= d;\n        \
             second <= first;\n    end\n    always @(*) q = second;\n"
        ))
    }
}

/// A memory with the write port on one clock and the read port on another; for [`AsyncFifo`] only, which never reads
/// a word while it is written.
#[derive(LogicBlock)]
struct TwoClockRam<D: Synth, const AW: usize> {
    pub write_clock: Signal<In, Clock>,
    pub write: Signal<In, bool>,
    pub write_addr: Signal<In, Bits<AW>>,
    pub write_data: Signal<In, D>,
    pub read_clock: Signal<In, Clock>,
    pub read: Signal<In, bool>,
    pub read_addr: Signal<In, Bits<AW>>,
    pub read_data: Signal<Out, D>,
    _words: Vec<D>,
    block_name: NameOf<TwoClockRam<D, AW>>,
}

impl<D: Synth, const AW: usize> Default for TwoClockRam<D, AW> {
    fn default() -> Self {
        Self {
            write_clock: Signal::default(),
            write: Signal::default(),
            write_addr: Signal::default(),
            write_data: Signal::default(),
            read_clock: Signal::default(),
            read: Signal::default(),
            read_addr: Signal::default(),
            read_data: Signal::default(),
            _words: vec![D::default(); 1 << AW],
            block_name: NameOf::default(),
        }
    }
}

impl<D: Synth, const AW: usize> Logic for TwoClockRam<D, AW> {
    fn update(&mut self) {
        if self.read_clock.pos_edge() && self.read.val() {
            self.read_data.next = self._words[self.read_addr.val().index()];
        }
        if self.write_clock.pos_edge() && self.write.val() {
            self._words[self.write_addr.val().index()] = self.write_data.val();
        }
    }

    fn connect(&mut self) {
        self.read_data.connect();
    }

    fn hdl(&self) -> Verilog {
        let range = range(D::BITS);
        let top = (1usize << AW) - 1;
        Verilog::Custom(format!(
            "    (* ram_style = \"distributed\" *) reg {range}words [0:{top}];\n    initial read_data = 0;\n    \
             always @(posedge write_clock) if (write) words[write_addr] <= write_data;\n    \
             always @(posedge read_clock) if (read) read_data <= words[read_addr];\n"
        ))
    }
}

/// The write half of [`AsyncFifo`].
mod write_half {
    use super::*;

    block! {
        /// Write pointer and full flag, in the write clock's domain.
        pub(super) struct WriteHalf[const AW: usize][AW] {
            in {
                clock: Clock,
                reset: Bit,
                in_valid: bool,
                read_gray: Bits<AW>,
            }
            out {
                in_ready: bool,
                write: bool,
                write_addr: Bits<AW>,
                write_gray: Bits<AW>,
            }
            local {
                push: bool,
                next_ptr: Bits<AW>,
                after_next: Bits<AW>,
                after_gray: Bits<AW>,
            }
            reg {
                write_ptr: Bits<AW>,
                gray: Bits<AW>,
                full: bool,
            }
        }
    }

    impl<const AW: usize> Logic for WriteHalf<AW> {
        #[hdl_gen]
        fn update(&mut self) {
            dff_setup!(self, clock, write_ptr, gray, full);
            self.in_ready.next = !self.full.q.val();
            self.push.next = self.in_valid.val() & !self.full.q.val();
            self.write.next = self.push.val();
            self.write_addr.next = self.write_ptr.q.val();
            self.write_gray.next = self.gray.q.val();
            self.next_ptr.next = self.write_ptr.q.val();
            if self.push.val() {
                self.next_ptr.next = self.write_ptr.q.val() + 1;
            }
            self.write_ptr.d.next = self.next_ptr.val();
            self.gray.d.next = self.next_ptr.val() ^ (self.next_ptr.val() >> 1);
            self.after_next.next = self.next_ptr.val() + 1;
            self.after_gray.next = self.after_next.val() ^ (self.after_next.val() >> 1);
            self.full.d.next = self.after_gray.val() == self.read_gray.val();
        }
    }
}

/// The read half of [`AsyncFifo`].
mod read_half {
    use super::*;

    block! {
        /// Read pointer and output stage control, in the read clock's domain.
        pub(super) struct ReadHalf[const AW: usize][AW] {
            in {
                clock: Clock,
                reset: Bit,
                out_ready: bool,
                write_gray: Bits<AW>,
            }
            out {
                out_valid: bool,
                read: bool,
                read_addr: Bits<AW>,
                read_gray: Bits<AW>,
            }
            local {
                move_on: bool,
                stored: bool,
                next_ptr: Bits<AW>,
            }
            reg {
                read_ptr: Bits<AW>,
                gray: Bits<AW>,
                front_valid: bool,
            }
        }
    }

    impl<const AW: usize> Logic for ReadHalf<AW> {
        #[hdl_gen]
        fn update(&mut self) {
            dff_setup!(self, clock, read_ptr, gray, front_valid);
            self.out_valid.next = self.front_valid.q.val();
            self.read_addr.next = self.read_ptr.q.val();
            self.read_gray.next = self.gray.q.val();
            self.move_on.next = !self.front_valid.q.val() | self.out_ready.val();
            self.stored.next = self.gray.q.val() != self.write_gray.val();
            self.read.next = self.move_on.val();
            self.next_ptr.next = self.read_ptr.q.val();
            if self.move_on.val() {
                self.front_valid.d.next = self.stored.val();
                if self.stored.val() {
                    self.next_ptr.next = self.read_ptr.q.val() + 1;
                }
            }
            self.read_ptr.d.next = self.next_ptr.val();
            self.gray.d.next = self.next_ptr.val() ^ (self.next_ptr.val() >> 1);
        }
    }
}

use read_half::ReadHalf;
use write_half::WriteHalf;

block! {
    /// A FIFO from one clock to another: gray pointers through [`Synchronizer`]s, LUT RAM.
    ///
    /// - In, on `in_clock`: `in_data`, `in_valid`; out: `in_ready`.
    /// - Out, on `out_clock`: `out_data`, `out_valid`; in: `out_ready`.
    /// - Holds 2^`AW` - 1 items and one more in the output register.
    /// - Latency: 1 write cycle, then 3 to 4 read cycles. Initiation interval: 1 on both sides, when `AW` is at least 4.
    /// - `in_reset` and `out_reset` belong to their clocks and must both be high together for some cycles of the slower
    ///   clock, or not at all.
    /// - Constraint for timing tools: the gray pointers cross within one period of the faster clock
    ///   (`set_max_delay -datapath_only`), and so does the memory's read path.
    pub struct AsyncFifo[D: Synth, const AW: usize][D, AW] {
        in {
            in_clock: Clock,
            in_reset: Bit,
            in_data: D,
            in_valid: bool,
            out_clock: Clock,
            out_reset: Bit,
            out_ready: bool,
        }
        out {
            in_ready: bool,
            out_data: D,
            out_valid: bool,
        }
        sub {
            ram: TwoClockRam<D, AW>,
            writer: WriteHalf<AW>,
            reader: ReadHalf<AW>,
            to_reader: Synchronizer<AW>,
            to_writer: Synchronizer<AW>,
        }
    }
}

impl<D: Synth, const AW: usize> Logic for AsyncFifo<D, AW> {
    #[hdl_gen]
    fn update(&mut self) {
        self.ram.write_clock.next = self.in_clock.val();
        self.ram.read_clock.next = self.out_clock.val();
        self.writer.clock.next = self.in_clock.val();
        self.writer.reset.next = self.in_reset.val();
        self.reader.clock.next = self.out_clock.val();
        self.reader.reset.next = self.out_reset.val();
        self.to_reader.clock.next = self.out_clock.val();
        self.to_writer.clock.next = self.in_clock.val();
        // Pointers.
        self.to_reader.d.next = self.writer.write_gray.val();
        self.reader.write_gray.next = self.to_reader.q.val();
        self.to_writer.d.next = self.reader.read_gray.val();
        self.writer.read_gray.next = self.to_writer.q.val();
        // Write side.
        self.writer.in_valid.next = self.in_valid.val();
        self.in_ready.next = self.writer.in_ready.val();
        self.ram.write.next = self.writer.write.val();
        self.ram.write_addr.next = self.writer.write_addr.val();
        self.ram.write_data.next = self.in_data.val();
        // Read side.
        self.reader.out_ready.next = self.out_ready.val();
        self.ram.read.next = self.reader.read.val();
        self.ram.read_addr.next = self.reader.read_addr.val();
        self.out_valid.next = self.reader.out_valid.val();
        self.out_data.next = self.ram.read_data.val();
    }
}

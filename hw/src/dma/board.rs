//! Which parts of outstanding reads have arrived.

use crate::prelude::*;

/// Tags that can be outstanding.
pub(super) const TAGS: usize = 64;

/// A word of 9 flags for each of 64 tags: flags 0 to 7 for the 64-byte chunks of a 512-byte block, flag 8 for an error.
///
/// - `set` ORs `set_flags` into the word of `set_tag`; `clear` empties the word of `clear_tag`. Both take effect in the
///   next cycle and are not used on one tag at once.
/// - `first` and `second` are the words of `first_tag` and `second_tag`, combinational: a 64:1 multiplexer.
#[derive(LogicBlock)]
pub(super) struct TagBoard {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub set: Signal<In, bool>,
    pub set_tag: Signal<In, Bits<6>>,
    pub set_flags: Signal<In, Bits<9>>,
    pub clear: Signal<In, bool>,
    pub clear_tag: Signal<In, Bits<6>>,
    pub first_tag: Signal<In, Bits<6>>,
    pub first: Signal<Out, Bits<9>>,
    pub second_tag: Signal<In, Bits<6>>,
    pub second: Signal<Out, Bits<9>>,
    _words: [Bits<9>; TAGS],
    block_name: NameOf<TagBoard>,
}

impl Default for TagBoard {
    fn default() -> Self {
        Self {
            clock: Signal::default(),
            reset: Signal::default(),
            set: Signal::default(),
            set_tag: Signal::default(),
            set_flags: Signal::default(),
            clear: Signal::default(),
            clear_tag: Signal::default(),
            first_tag: Signal::default(),
            first: Signal::default(),
            second_tag: Signal::default(),
            second: Signal::default(),
            _words: [Bits::default(); TAGS],
            block_name: NameOf::default(),
        }
    }
}

impl Logic for TagBoard {
    fn update(&mut self) {
        if self.clock.pos_edge() {
            if self.reset.val() {
                self._words = [Bits::default(); TAGS];
            } else {
                if self.set.val() {
                    let word = &mut self._words[self.set_tag.val().index()];
                    *word = *word | self.set_flags.val();
                }
                if self.clear.val() {
                    self._words[self.clear_tag.val().index()] = Bits::default();
                }
            }
        }
        self.first.next = self._words[self.first_tag.val().index()];
        self.second.next = self._words[self.second_tag.val().index()];
    }

    fn connect(&mut self) {
        self.first.connect();
        self.second.connect();
    }

    fn hdl(&self) -> Verilog {
        // One vector per flag.
        let mut text = String::new();
        for flag in 0..9 {
            text += &format!(
                "    reg [63:0] flag{flag};\n    initial flag{flag} = 0;\n    always @(posedge clock)\n        \
                 if (reset) flag{flag} <= 0;\n        else begin\n            \
                 if (set && set_flags[{flag}]) flag{flag}[set_tag] <= 1'b1;\n            \
                 if (clear) flag{flag}[clear_tag] <= 1'b0;\n        end\n    \
                 assign first[{flag}] = flag{flag}[first_tag];\n    \
                 assign second[{flag}] = flag{flag}[second_tag];\n"
            );
        }
        Verilog::Custom(text)
    }
}

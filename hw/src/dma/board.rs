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
        let top = TAGS - 1;
        Verilog::Custom(format!(
            "    reg [8:0] words [0:{top}];\n    integer i;\n    initial for (i = 0; i <= {top}; i = i + 1) words[i] = 0;\n    \
             always @(posedge clock)\n        for (i = 0; i <= {top}; i = i + 1)\n            \
             if (reset) words[i] <= 0;\n            else if (clear && clear_tag == i[5:0]) words[i] <= 0;\n            \
             else if (set && set_tag == i[5:0]) words[i] <= words[i] | set_flags;\n    \
             assign first = words[first_tag];\n    assign second = words[second_tag];\n"
        ))
    }
}

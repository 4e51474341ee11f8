//! The argument window: 32 dwords that software writes one by one and commands read at once.

use crate::prelude::*;

/// Dword `index` of `image` becomes `data` on a clock edge with `write` high. No reset: a command reads what software
/// wrote, and software writes all that the command reads.
#[derive(LogicBlock, Default)]
pub struct Window {
    pub clock: Signal<In, Clock>,
    pub write: Signal<In, Bit>,
    pub index: Signal<In, Bits<5>>,
    pub data: Signal<In, Bits<32>>,
    pub image: Signal<Out, Bits<1024>>,
    block_name: NameOf<Window>,
}

impl Logic for Window {
    fn update(&mut self) {
        if self.clock.pos_edge() && self.write.val() {
            let mut image = self.image.val();
            for bit in 0..32 {
                image = image.replace_bit(
                    32 * self.index.val().index() + bit,
                    self.data.val().get_bit(bit),
                );
            }
            self.image.next = image;
        }
    }

    fn connect(&mut self) {
        self.image.connect();
    }

    fn hdl(&self) -> Verilog {
        Verilog::Custom(
            "    initial image = 0;\n    always @(posedge clock) if (write) image[{index, 5'd0} +: 32] <= data;\n"
                .into(),
        )
    }
}

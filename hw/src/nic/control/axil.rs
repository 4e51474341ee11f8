//! AXI4-Lite slave in front of the registers.

use crate::prelude::*;

block! {
    /// Turns AXI4-Lite into a register bus: one write and one read at a time, 32 bits wide, no byte strobes.
    ///
    /// - Out `write` is high with `write_addr` and `write_data` until `write_ready`; then the write response is sent.
    /// - Out `read` is high for one cycle with `read_addr`; the read response is sent with the `read_data` of the cycle
    ///   in which `read_done` is high.
    /// - Every access is answered with OKAY: what an unknown address means is the register file's affair.
    pub struct AxiLite {
        in {
            clock: Clock,
            reset: Bit,
            s_axil_awaddr: Bits<24>,
            s_axil_awvalid: Bit,
            s_axil_wdata: Bits<32>,
            s_axil_wvalid: Bit,
            s_axil_bready: Bit,
            s_axil_araddr: Bits<24>,
            s_axil_arvalid: Bit,
            s_axil_rready: Bit,
            write_ready: Bit,
            read_data: Bits<32>,
            read_done: Bit,
        }
        out {
            s_axil_awready: Bit,
            s_axil_wready: Bit,
            s_axil_bresp: Bits<2>,
            s_axil_bvalid: Bit,
            s_axil_arready: Bit,
            s_axil_rdata: Bits<32>,
            s_axil_rresp: Bits<2>,
            s_axil_rvalid: Bit,
            write: Bit,
            write_addr: Bits<24>,
            write_data: Bits<32>,
            read: Bit,
            read_addr: Bits<24>,
        }
        reg {
            have_address: Bit,
            have_data: Bit,
            respond_write: Bit,
            start_read: Bit,
            reading: Bit,
            respond_read: Bit,
        }
        pipe {
            address: Bits<24>,
            data: Bits<32>,
            from: Bits<24>,
            answer: Bits<32>,
        }
    }
}

impl Logic for AxiLite {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(
            self,
            clock,
            have_address,
            have_data,
            respond_write,
            start_read,
            reading,
            respond_read,
            address,
            data,
            from,
            answer
        );
        comment!("writes: address and data may come in either order");
        self.s_axil_awready.next = !self.have_address.q.val();
        self.s_axil_wready.next = !self.have_data.q.val();
        if self.s_axil_awvalid.val() & !self.have_address.q.val() {
            self.have_address.d.next = true;
            self.address.d.next = self.s_axil_awaddr.val();
        }
        if self.s_axil_wvalid.val() & !self.have_data.q.val() {
            self.have_data.d.next = true;
            self.data.d.next = self.s_axil_wdata.val();
        }
        self.write.next =
            self.have_address.q.val() & self.have_data.q.val() & !self.respond_write.q.val();
        self.write_addr.next = self.address.q.val();
        self.write_data.next = self.data.q.val();
        if self.have_address.q.val()
            & self.have_data.q.val()
            & !self.respond_write.q.val()
            & self.write_ready.val()
        {
            self.respond_write.d.next = true;
        }
        self.s_axil_bvalid.next = self.respond_write.q.val();
        self.s_axil_bresp.next = bits::<2>(0);
        if self.respond_write.q.val() & self.s_axil_bready.val() {
            self.respond_write.d.next = false;
            self.have_address.d.next = false;
            self.have_data.d.next = false;
        }
        comment!("reads");
        self.s_axil_arready.next = !self.reading.q.val();
        self.start_read.d.next = false;
        if self.s_axil_arvalid.val() & !self.reading.q.val() {
            self.reading.d.next = true;
            self.start_read.d.next = true;
            self.from.d.next = self.s_axil_araddr.val();
        }
        self.read.next = self.start_read.q.val();
        self.read_addr.next = self.from.q.val();
        if self.read_done.val() {
            self.respond_read.d.next = true;
            self.answer.d.next = self.read_data.val();
        }
        self.s_axil_rvalid.next = self.respond_read.q.val();
        self.s_axil_rresp.next = bits::<2>(0);
        self.s_axil_rdata.next = self.answer.q.val();
        if self.respond_read.q.val() & self.s_axil_rready.val() {
            self.respond_read.d.next = false;
            self.reading.d.next = false;
        }
    }
}

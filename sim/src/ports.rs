//! The ports of the core's top level, once: as structs for Rust and as tables from which the build script makes the
//! C++ side.

macro_rules! ports {
    ($(#[$meta:meta])* $name:ident, $table:ident { $($(#[$doc:meta])* $port:ident: $kind:ty = $bits:literal,)+ }) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name { $($(#[$doc])* pub $port: $kind,)+ }

        /// Name and width in bits of every port of the struct, in its order.
        pub const $table: &[(&str, u32)] = &[$((stringify!($port), $bits)),+];
    };
}

/// A 512-bit bus; byte 0 is the low byte of word 0.
pub type Wide = [u64; 8];

ports! {
    /// Everything the card drives into the core in one clock cycle.
    NicIn, INPUTS {
        /// Synchronous reset.
        reset: u8 = 1,
        /// AXI4-Lite write address.
        s_axil_awaddr: u32 = 24,
        /// Write address is there.
        s_axil_awvalid: u8 = 1,
        /// AXI4-Lite write data.
        s_axil_wdata: u32 = 32,
        /// Write data is there.
        s_axil_wvalid: u8 = 1,
        /// Write response is taken.
        s_axil_bready: u8 = 1,
        /// AXI4-Lite read address.
        s_axil_araddr: u32 = 24,
        /// Read address is there.
        s_axil_arvalid: u8 = 1,
        /// Read data is taken.
        s_axil_rready: u8 = 1,
        /// A DMA read request is taken.
        m_rd_req_ready: u8 = 1,
        /// A read completion is there; it cannot be refused.
        s_rd_cpl_valid: u8 = 1,
        /// Its request.
        s_rd_cpl_tag: u8 = 8,
        /// Address bits 8..6 of its bytes.
        s_rd_cpl_chunk: u8 = 3,
        /// Its bytes, each on the lane of its address modulo 64.
        s_rd_cpl_data: Wide = 512,
        /// The request failed.
        s_rd_cpl_err: u8 = 1,
        /// A DMA write beat is taken.
        m_wr_ready: u8 = 1,
        /// An interrupt request is taken.
        m_irq_ready: u8 = 1,
        /// A frame beat to send is taken.
        m_axis_tx_tready: u8 = 1,
        /// Received bytes.
        s_axis_rx_tdata: Wide = 512,
        /// Which of them count.
        s_axis_rx_tkeep: u64 = 64,
        /// Last beat of a frame.
        s_axis_rx_tlast: u8 = 1,
        /// A received beat is there; it cannot be refused.
        s_axis_rx_tvalid: u8 = 1,
        /// With the last beat: the MAC found the frame bad.
        s_axis_rx_tuser: u8 = 1,
    }
}

ports! {
    /// Everything the core drives in one clock cycle.
    NicOut, OUTPUTS {
        /// Write address is taken.
        s_axil_awready: u8 = 1,
        /// Write data is taken.
        s_axil_wready: u8 = 1,
        /// AXI4-Lite write response code.
        s_axil_bresp: u8 = 2,
        /// Write response is there.
        s_axil_bvalid: u8 = 1,
        /// Read address is taken.
        s_axil_arready: u8 = 1,
        /// AXI4-Lite read data.
        s_axil_rdata: u32 = 32,
        /// AXI4-Lite read response code.
        s_axil_rresp: u8 = 2,
        /// Read data is there.
        s_axil_rvalid: u8 = 1,
        /// Bus address of a DMA read.
        m_rd_req_addr: u64 = 64,
        /// Its length, bytes.
        m_rd_req_length: u32 = 13,
        /// Its tag.
        m_rd_req_tag: u8 = 8,
        /// A DMA read request is there.
        m_rd_req_valid: u8 = 1,
        /// Bus address of a DMA write beat, a multiple of 64.
        m_wr_addr: u64 = 64,
        /// Its bytes, each on the lane of its address modulo 64.
        m_wr_data: Wide = 512,
        /// Which of them are written.
        m_wr_be: u64 = 64,
        /// First beat of a PCIe write.
        m_wr_sop: u8 = 1,
        /// Last beat of a PCIe write.
        m_wr_eop: u8 = 1,
        /// A DMA write beat is there.
        m_wr_valid: u8 = 1,
        /// MSI-X vector to raise.
        m_irq_vector: u8 = 8,
        /// An interrupt request is there.
        m_irq_valid: u8 = 1,
        /// Bytes to send.
        m_axis_tx_tdata: Wide = 512,
        /// Which of them count.
        m_axis_tx_tkeep: u64 = 64,
        /// Last beat of a frame.
        m_axis_tx_tlast: u8 = 1,
        /// A beat to send is there.
        m_axis_tx_tvalid: u8 = 1,
        /// Something inside is not finished.
        busy: u8 = 1,
    }
}

//! Base transport header (IBA 9.2; FECN and BECN as in annex A17).

use super::{header, plain_repr, Psn};

header! { "BTH", 12 bytes {
    OPCODE opcode set_opcode: u8 = 0, 0, 8, "Transport and operation.";
    TRANSPORT transport set_transport: u8 = 0, 5, 3, "Transport part of the opcode.";
    OPERATION operation set_operation: u8 = 0, 0, 5, "Operation part of the opcode.";
    SOLICITED solicited set_solicited: bool = 1, 7, 1, "Solicited event.";
    MIGRATED migrated set_migrated: bool = 1, 6, 1, "Migration state.";
    PAD pad set_pad: u8 = 1, 4, 2, "Pad bytes after the payload.";
    VERSION version set_version: u8 = 1, 0, 4, "Transport header version, 0.";
    PKEY pkey set_pkey: u16 = 2, 0, 16, "Partition key.";
    FECN fecn set_fecn: bool = 4, 7, 1, "Forward congestion notification.";
    BECN becn set_becn: bool = 4, 6, 1, "Backward congestion notification.";
    DQPN dqpn set_dqpn: u32 = 5, 0, 24, "Destination QP number.";
    ACK_REQ ack_req set_ack_req: bool = 8, 7, 1, "An acknowledgement is asked for.";
    PSN psn set_psn: Psn = 9, 0, 24, "Packet sequence number.";
} }

/// The byte that holds FECN and BECN; the ICRC takes it as all ones.
pub const ECN_BYTE: usize = 4;

plain_repr! {
    /// The header's fields. Reserved bits are ignored on receipt and sent as zero.
    {
        opcode set_opcode: u8 = "Transport and operation, see [`opcode`].";
        solicited set_solicited: bool = "Solicited event.";
        migrated set_migrated: bool = "Migration state.";
        pad set_pad: u8 = "Pad bytes after the payload, 0 to 3.";
        version set_version: u8 = "Transport header version, 0.";
        pkey set_pkey: u16 = "Partition key.";
        fecn set_fecn: bool = "Forward congestion notification.";
        becn set_becn: bool = "Backward congestion notification.";
        dqpn set_dqpn: u32 = "Destination QP number, 24 bits.";
        ack_req set_ack_req: bool = "An acknowledgement is asked for.";
        psn set_psn: Psn = "Packet sequence number.";
    }
}

/// Opcodes (IBA 9.2.1), and those of the MP transport in the manufacturer-specific range.
pub mod opcode {
    /// Transport code of reliable connections, bits 7..5.
    pub const RC: u8 = 0b000;
    /// Transport code of MP-RDMA, bits 7..5.
    pub const MP: u8 = 0b110;
    /// Congestion notification packet (IBA annex A17).
    pub const CNP: u8 = 0x81;

    macro_rules! opcodes {
        ($($operation:literal $rc:ident $mp:ident $what:literal;)+) => {
            $(
                #[doc = concat!("RC ", $what, ".")]
                pub const $rc: u8 = RC << 5 | $operation;
                #[doc = concat!("MP ", $what, ".")]
                pub const $mp: u8 = MP << 5 | $operation;
            )+
            /// Name of a known opcode, without its transport.
            #[must_use]
            pub const fn name(opcode: u8) -> Option<&'static str> {
                match opcode {
                    $($rc | $mp => Some($what),)+
                    CNP => Some("CNP"),
                    _ => None,
                }
            }
        };
    }
    opcodes! {
        0x00 RC_SEND_FIRST MP_SEND_FIRST "SEND FIRST";
        0x01 RC_SEND_MIDDLE MP_SEND_MIDDLE "SEND MIDDLE";
        0x02 RC_SEND_LAST MP_SEND_LAST "SEND LAST";
        0x03 RC_SEND_LAST_IMM MP_SEND_LAST_IMM "SEND LAST with immediate";
        0x04 RC_SEND_ONLY MP_SEND_ONLY "SEND ONLY";
        0x05 RC_SEND_ONLY_IMM MP_SEND_ONLY_IMM "SEND ONLY with immediate";
        0x06 RC_WRITE_FIRST MP_WRITE_FIRST "WRITE FIRST";
        0x07 RC_WRITE_MIDDLE MP_WRITE_MIDDLE "WRITE MIDDLE";
        0x08 RC_WRITE_LAST MP_WRITE_LAST "WRITE LAST";
        0x09 RC_WRITE_LAST_IMM MP_WRITE_LAST_IMM "WRITE LAST with immediate";
        0x0a RC_WRITE_ONLY MP_WRITE_ONLY "WRITE ONLY";
        0x0b RC_WRITE_ONLY_IMM MP_WRITE_ONLY_IMM "WRITE ONLY with immediate";
        0x0c RC_READ_REQUEST MP_READ_REQUEST "READ REQUEST";
        0x0d RC_READ_RESPONSE_FIRST MP_READ_RESPONSE_FIRST "READ RESPONSE FIRST";
        0x0e RC_READ_RESPONSE_MIDDLE MP_READ_RESPONSE_MIDDLE "READ RESPONSE MIDDLE";
        0x0f RC_READ_RESPONSE_LAST MP_READ_RESPONSE_LAST "READ RESPONSE LAST";
        0x10 RC_READ_RESPONSE_ONLY MP_READ_RESPONSE_ONLY "READ RESPONSE ONLY";
        0x11 RC_ACK MP_ACK "ACK";
        0x12 RC_ATOMIC_ACK MP_ATOMIC_ACK "ATOMIC ACK";
        0x13 RC_COMPARE_SWAP MP_COMPARE_SWAP "COMPARE SWAP";
        0x14 RC_FETCH_ADD MP_FETCH_ADD "FETCH ADD";
        0x16 RC_SEND_LAST_INV MP_SEND_LAST_INV "SEND LAST with invalidate";
        0x17 RC_SEND_ONLY_INV MP_SEND_ONLY_INV "SEND ONLY with invalidate";
    }

    /// What follows BTH in a packet; the order of the fields is that on the wire.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Shape {
        /// MPETH.
        pub mpeth: bool,
        /// RETH.
        pub reth: bool,
        /// AtomicETH.
        pub atomic: bool,
        /// AETH.
        pub aeth: bool,
        /// AtomicAckETH.
        pub atomic_ack: bool,
        /// MPAETH and, when it says so, the SACK map.
        pub mpaeth: bool,
        /// Immediate data.
        pub imm: bool,
        /// IETH.
        pub ieth: bool,
        /// Payload.
        pub payload: bool,
        /// Another packet of the message follows, so this one is full and unpadded.
        pub more: bool,
    }

    /// The headers that `opcode` wants; `None` for opcodes unknown here and for CNP, which has none.
    ///
    /// In MP mode every WRITE packet has a RETH, every data packet an MPETH, and the answers to READ and ATOMIC, which
    /// are data of the responder's own sender, no AETH.
    #[must_use]
    pub const fn shape(opcode: u8) -> Option<Shape> {
        let mp = opcode >> 5 == MP;
        if opcode == CNP || name(opcode).is_none() {
            return None;
        }
        let op = opcode & 0x1f;
        Some(Shape {
            mpeth: mp && op != RC_ACK,
            reth: matches!(
                op,
                RC_WRITE_FIRST | RC_WRITE_ONLY | RC_WRITE_ONLY_IMM | RC_READ_REQUEST
            ) || mp && matches!(op, RC_WRITE_MIDDLE | RC_WRITE_LAST | RC_WRITE_LAST_IMM),
            atomic: matches!(op, RC_COMPARE_SWAP | RC_FETCH_ADD),
            aeth: op == RC_ACK
                || !mp
                    && matches!(
                        op,
                        RC_READ_RESPONSE_FIRST
                            | RC_READ_RESPONSE_LAST
                            | RC_READ_RESPONSE_ONLY
                            | RC_ATOMIC_ACK
                    ),
            atomic_ack: op == RC_ATOMIC_ACK,
            mpaeth: mp && op == RC_ACK,
            imm: matches!(
                op,
                RC_SEND_LAST_IMM | RC_SEND_ONLY_IMM | RC_WRITE_LAST_IMM | RC_WRITE_ONLY_IMM
            ),
            ieth: matches!(op, RC_SEND_LAST_INV | RC_SEND_ONLY_INV),
            payload: !matches!(
                op,
                RC_READ_REQUEST | RC_ACK | RC_ATOMIC_ACK | RC_COMPARE_SWAP | RC_FETCH_ADD
            ),
            more: matches!(
                op,
                RC_SEND_FIRST
                    | RC_SEND_MIDDLE
                    | RC_WRITE_FIRST
                    | RC_WRITE_MIDDLE
                    | RC_READ_RESPONSE_FIRST
                    | RC_READ_RESPONSE_MIDDLE
            ),
        })
    }

    /// Whether `opcode` is one of the MP WRITE packets.
    #[must_use]
    pub const fn is_mp_write(opcode: u8) -> bool {
        opcode >= MP_WRITE_FIRST && opcode <= MP_WRITE_ONLY_IMM
    }

    /// Whether `opcode` is one of the MP READ RESPONSE packets.
    #[must_use]
    pub const fn is_mp_read_response(opcode: u8) -> bool {
        opcode >= MP_READ_RESPONSE_FIRST && opcode <= MP_READ_RESPONSE_ONLY
    }

    /// Whether `opcode` asks for an ATOMIC in MP mode.
    #[must_use]
    pub const fn is_mp_atomic_request(opcode: u8) -> bool {
        opcode == MP_COMPARE_SWAP || opcode == MP_FETCH_ADD
    }

    /// Whether `opcode` is a packet that the receiver half of an MP queue pair takes: WRITE, READ REQUEST, READ RESPONSE,
    /// and an ATOMIC's request and answer.
    #[must_use]
    pub const fn is_mp_data(opcode: u8) -> bool {
        is_mp_write(opcode)
            || opcode == MP_READ_REQUEST
            || is_mp_read_response(opcode)
            || is_mp_atomic_request(opcode)
            || opcode == MP_ATOMIC_ACK
    }
}

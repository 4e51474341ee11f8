//! Whole RoCEv2 frames: Ethernet, optional 802.1Q tag, IPv4 or IPv6, UDP, BTH, extension headers, payload, pad, ICRC;
//! no preamble and no FCS.

use super::{
    aeth, atomicacketh, atomiceth,
    bth::{self, opcode, opcode::Shape},
    ethernet, icrc, ieth, immdt, ipv4, ipv6, mpaeth, mpeth, reth, udp, vlan, Field, Psn, SackMap,
    WireError,
};

/// Largest payload of a packet, the largest path MTU, in bytes.
pub const MAX_PAYLOAD: usize = 4096;
/// Reserved bytes that a CNP carries after BTH (IBA annex A17).
pub const CNP_RESERVED: usize = 16;

/// 802.1Q tag of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Priority code point, 0 to 7.
    pub pcp: u8,
    /// Drop eligible.
    pub dei: bool,
    /// VLAN identifier, 0 to 4095.
    pub vid: u16,
}

/// The network header, without what follows from the rest of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// IPv4.
    V4 {
        /// Source address.
        src: [u8; 4],
        /// Destination address.
        dst: [u8; 4],
        /// Identification.
        id: u16,
        /// Must not be fragmented.
        dont_fragment: bool,
    },
    /// IPv6.
    V6 {
        /// Source address.
        src: [u8; 16],
        /// Destination address.
        dst: [u8; 16],
        /// Flow label, 20 bits.
        flow_label: u32,
    },
}

/// BTH without pad count and version, which follow from the rest of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport {
    /// Opcode, see [`opcode`].
    pub opcode: u8,
    /// Solicited event.
    pub solicited: bool,
    /// Migration state.
    pub migrated: bool,
    /// Partition key.
    pub pkey: u16,
    /// Forward congestion notification.
    pub fecn: bool,
    /// Backward congestion notification.
    pub becn: bool,
    /// Destination QP number, 24 bits.
    pub dqpn: u32,
    /// An acknowledgement is asked for.
    pub ack_req: bool,
    /// Packet sequence number; SACK in an MP ACK.
    pub psn: Psn,
}

/// Extension headers of packets that have no variant of their own in [`Body`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extensions {
    /// MPETH.
    pub mpeth: Option<mpeth::Repr>,
    /// RETH.
    pub reth: Option<reth::Repr>,
    /// AtomicETH.
    pub atomic: Option<atomiceth::Repr>,
    /// AETH.
    pub aeth: Option<aeth::Repr>,
    /// AtomicAckETH.
    pub atomic_ack: Option<atomicacketh::Repr>,
    /// MPAETH.
    pub mpaeth: Option<mpaeth::Repr>,
    /// SACK map.
    pub map: Option<SackMap>,
    /// Immediate data.
    pub imm: Option<u32>,
    /// Remote key to invalidate.
    pub invalidate: Option<u32>,
}

/// What follows BTH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// MP WRITE FIRST, MIDDLE, LAST or ONLY.
    MpWrite {
        /// MPETH.
        mpeth: mpeth::Repr,
        /// RETH; its length is the payload's.
        reth: reth::Repr,
        /// Immediate data, with the opcodes that have it.
        imm: Option<u32>,
        /// Payload without pad.
        payload: &'a [u8],
    },
    /// MP ACK or NAK.
    MpAck {
        /// AETH.
        aeth: aeth::Repr,
        /// MPAETH; its flags say whether there is a map.
        mpaeth: mpaeth::Repr,
        /// SACK map.
        map: Option<SackMap>,
    },
    /// Congestion notification.
    Cnp,
    /// All RC packets, and MP SEND, READ and ATOMIC.
    Other {
        /// Extension headers.
        extensions: Extensions,
        /// Payload without pad.
        payload: &'a [u8],
    },
}

/// A RoCEv2 frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Destination MAC address.
    pub dst_mac: [u8; 6],
    /// Source MAC address.
    pub src_mac: [u8; 6],
    /// 802.1Q tag.
    pub tag: Option<Tag>,
    /// IP addresses.
    pub address: Address,
    /// Differentiated services code point, 0 to 63.
    pub dscp: u8,
    /// Explicit congestion notification, 0 to 3.
    pub ecn: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// UDP source port; in MP mode the virtual path.
    pub src_port: u16,
    /// BTH.
    pub bth: Transport,
    /// What follows BTH.
    pub body: Body<'a>,
}

/// Where the parts of a frame begin, in bytes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// IP header.
    pub ip: usize,
    /// UDP header.
    pub udp: usize,
    /// BTH.
    pub bth: usize,
    /// ICRC; the packet ends four bytes later.
    pub icrc: usize,
}

fn value(header: &'static str, field: &Field, value: u64) -> WireError {
    WireError::Value {
        header,
        field: field.name,
        value,
    }
}

/// Walks the outer headers of `frame` and checks that their lengths agree. Bytes after the IP packet are let pass only
/// in a frame short enough for Ethernet's own padding.
///
/// # Errors
/// When `frame` is cut short, is not RoCEv2, or its lengths disagree.
pub fn locate(frame: &[u8]) -> Result<Envelope, WireError> {
    let mut ethertype = ethernet::View::new(frame)?.ethertype();
    let mut ip = ethernet::LEN;
    if ethertype == ethernet::VLAN {
        ethertype = vlan::View::new(&frame[ip..])?.ethertype();
        ip += vlan::LEN;
    }
    let packet = &frame[ip..];
    let (name, ip_len, stated) = match ethertype {
        ethernet::IPV4 => {
            let header = ipv4::Repr::parse(packet)?;
            if header.protocol != ipv4::UDP {
                return Err(value("IPv4", &ipv4::PROTOCOL, header.protocol.into()));
            }
            ("IPv4", ipv4::LEN, usize::from(header.total_len))
        }
        ethernet::IPV6 => {
            let header = ipv6::Repr::parse(packet)?;
            if header.next_header != ipv4::UDP {
                return Err(value("IPv6", &ipv6::NEXT_HEADER, header.next_header.into()));
            }
            (
                "IPv6",
                ipv6::LEN,
                ipv6::LEN + usize::from(header.payload_len),
            )
        }
        other => return Err(value("Ethernet", &ethernet::ETHERTYPE, other.into())),
    };
    let actual = packet.len();
    let padded = actual > stated && frame.len() <= ethernet::MIN_FRAME + vlan::LEN;
    if stated < ip_len || actual != stated && !padded {
        return Err(WireError::Length {
            header: name,
            stated,
            actual,
        });
    }
    let datagram = &packet[ip_len..stated];
    let header = udp::Repr::parse(datagram)?;
    if header.dst_port != udp::ROCE_PORT {
        return Err(value("UDP", &udp::DST_PORT, header.dst_port.into()));
    }
    if usize::from(header.length) != datagram.len() {
        return Err(WireError::Length {
            header: "UDP",
            stated: header.length.into(),
            actual: datagram.len(),
        });
    }
    let need = udp::LEN + bth::LEN + icrc::LEN;
    if datagram.len() < need {
        return Err(WireError::Truncated {
            header: "RoCEv2 packet",
            need,
            have: datagram.len(),
        });
    }
    let udp = ip + ip_len;
    Ok(Envelope {
        ip,
        udp,
        bth: udp + udp::LEN,
        icrc: ip + stated - icrc::LEN,
    })
}

/// Reads headers one after the other.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<R>(
        &mut self,
        wanted: bool,
        len: usize,
        parse: impl Fn(&[u8]) -> Result<R, WireError>,
    ) -> Result<Option<R>, WireError> {
        if !wanted {
            return Ok(None);
        }
        let header = parse(self.0)?;
        self.0 = &self.0[len..];
        Ok(Some(header))
    }
}

/// Writes headers one after the other.
struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put<R>(
        &mut self,
        header: Option<R>,
        len: usize,
        emit: impl Fn(&R, &mut [u8]) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        if let Some(header) = header {
            emit(&header, &mut self.bytes[self.at..])?;
            self.at += len;
        }
        Ok(())
    }
}

impl Extensions {
    /// Reads the headers that `shape` wants; returns them and the bytes behind them.
    fn parse<'a>(shape: &Shape, bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WireError> {
        let mut reader = Reader(bytes);
        let mut headers = Self {
            mpeth: reader.take(shape.mpeth, mpeth::LEN, mpeth::Repr::parse)?,
            reth: reader.take(shape.reth, reth::LEN, reth::Repr::parse)?,
            atomic: reader.take(shape.atomic, atomiceth::LEN, atomiceth::Repr::parse)?,
            aeth: reader.take(shape.aeth, aeth::LEN, aeth::Repr::parse)?,
            atomic_ack: reader.take(
                shape.atomic_ack,
                atomicacketh::LEN,
                atomicacketh::Repr::parse,
            )?,
            mpaeth: reader.take(shape.mpaeth, mpaeth::LEN, mpaeth::Repr::parse)?,
            map: None,
            imm: reader
                .take(shape.imm, immdt::LEN, immdt::Repr::parse)?
                .map(|header| header.data),
            invalidate: reader
                .take(shape.ieth, ieth::LEN, ieth::Repr::parse)?
                .map(|header| header.rkey),
        };
        if headers.announces_map() {
            headers.map = Some(SackMap::parse(reader.0)?);
            reader.0 = &[];
        }
        Ok((headers, reader.0))
    }

    fn announces_map(&self) -> bool {
        self.mpaeth
            .is_some_and(|header| header.flags & mpaeth::FLAG_SACK_MAP != 0)
    }

    /// Whether these are the headers that `shape` wants.
    fn fit(&self, shape: &Shape) -> bool {
        self.mpeth.is_some() == shape.mpeth
            && self.reth.is_some() == shape.reth
            && self.atomic.is_some() == shape.atomic
            && self.aeth.is_some() == shape.aeth
            && self.atomic_ack.is_some() == shape.atomic_ack
            && self.mpaeth.is_some() == shape.mpaeth
            && self.map.is_some() == self.announces_map()
            && self.imm.is_some() == shape.imm
            && self.invalidate.is_some() == shape.ieth
    }

    fn len(&self) -> usize {
        let size = |present: bool, len: usize| if present { len } else { 0 };
        size(self.mpeth.is_some(), mpeth::LEN)
            + size(self.reth.is_some(), reth::LEN)
            + size(self.atomic.is_some(), atomiceth::LEN)
            + size(self.aeth.is_some(), aeth::LEN)
            + size(self.atomic_ack.is_some(), atomicacketh::LEN)
            + size(self.mpaeth.is_some(), mpaeth::LEN)
            + self.map.map_or(0, |map| map.len())
            + size(self.imm.is_some(), immdt::LEN)
            + size(self.invalidate.is_some(), ieth::LEN)
    }

    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), WireError> {
        writer.put(self.mpeth, mpeth::LEN, mpeth::Repr::emit)?;
        writer.put(self.reth, reth::LEN, reth::Repr::emit)?;
        writer.put(self.atomic, atomiceth::LEN, atomiceth::Repr::emit)?;
        writer.put(self.aeth, aeth::LEN, aeth::Repr::emit)?;
        writer.put(self.atomic_ack, atomicacketh::LEN, atomicacketh::Repr::emit)?;
        writer.put(self.mpaeth, mpaeth::LEN, mpaeth::Repr::emit)?;
        writer.put(self.map, self.map.map_or(0, |map| map.len()), SackMap::emit)?;
        let imm = self.imm.map(|data| immdt::Repr { data });
        writer.put(imm, immdt::LEN, immdt::Repr::emit)?;
        let invalidate = self.invalidate.map(|rkey| ieth::Repr { rkey });
        writer.put(invalidate, ieth::LEN, ieth::Repr::emit)
    }
}

impl<'a> Body<'a> {
    fn parse(header: &bth::Repr, bytes: &'a [u8]) -> Result<Self, WireError> {
        let code = header.opcode;
        let pad = usize::from(header.pad);
        let wrong_pad = |payload| WireError::Pad {
            pad: header.pad,
            payload,
        };
        if code == opcode::CNP {
            if bytes.len() != CNP_RESERVED {
                return Err(WireError::Length {
                    header: "CNP",
                    stated: CNP_RESERVED,
                    actual: bytes.len(),
                });
            }
            return if pad == 0 {
                Ok(Self::Cnp)
            } else {
                Err(wrong_pad(0))
            };
        }
        let shape = opcode::shape(code).ok_or(WireError::Opcode(code))?;
        let (extensions, rest) = Extensions::parse(&shape, bytes)?;
        if !shape.payload && !rest.is_empty() {
            return Err(WireError::Length {
                header: "packet without payload",
                stated: 0,
                actual: rest.len(),
            });
        }
        if pad > rest.len() || rest.len() % 4 != 0 || shape.more && pad != 0 {
            return Err(wrong_pad(rest.len()));
        }
        let payload = &rest[..rest.len() - pad];
        let body = match extensions {
            Extensions {
                mpeth: Some(mpeth),
                reth: Some(reth),
                imm,
                ..
            } if opcode::is_mp_write(code) => Self::MpWrite {
                mpeth,
                reth,
                imm,
                payload,
            },
            Extensions {
                aeth: Some(aeth),
                mpaeth: Some(mpaeth),
                map,
                ..
            } => Self::MpAck { aeth, mpaeth, map },
            _ => Self::Other {
                extensions,
                payload,
            },
        };
        body.check(code)?;
        Ok(body)
    }

    /// The extension headers and the payload, whatever the variant.
    #[must_use]
    pub fn split(&self) -> (Extensions, &'a [u8]) {
        match *self {
            Self::MpWrite {
                mpeth,
                reth,
                imm,
                payload,
            } => (
                Extensions {
                    mpeth: Some(mpeth),
                    reth: Some(reth),
                    imm,
                    ..Extensions::default()
                },
                payload,
            ),
            Self::MpAck { aeth, mpaeth, map } => (
                Extensions {
                    aeth: Some(aeth),
                    mpaeth: Some(mpaeth),
                    map,
                    ..Extensions::default()
                },
                &[],
            ),
            Self::Cnp => (Extensions::default(), &[]),
            Self::Other {
                extensions,
                payload,
            } => (extensions, payload),
        }
    }

    /// Bytes from the end of BTH to the ICRC.
    fn len(&self) -> usize {
        if *self == Self::Cnp {
            return CNP_RESERVED;
        }
        let (extensions, payload) = self.split();
        extensions.len() + payload.len().next_multiple_of(4)
    }

    /// Checks that this is what `code` wants.
    fn check(&self, code: u8) -> Result<(), WireError> {
        let (extensions, payload) = self.split();
        if (code == opcode::CNP) != (*self == Self::Cnp) {
            return Err(WireError::Extensions(code));
        }
        if code == opcode::CNP {
            return Ok(());
        }
        let shape = opcode::shape(code).ok_or(WireError::Opcode(code))?;
        let own_variant = match self {
            Self::MpWrite { .. } => opcode::is_mp_write(code),
            Self::MpAck { .. } => code == opcode::MP_ACK,
            _ => !opcode::is_mp_write(code) && code != opcode::MP_ACK,
        };
        if !own_variant || !extensions.fit(&shape) || !shape.payload && !payload.is_empty() {
            return Err(WireError::Extensions(code));
        }
        if payload.len() > MAX_PAYLOAD {
            return Err(WireError::PayloadTooLong(payload.len()));
        }
        if shape.more && payload.len() % 4 != 0 {
            return Err(WireError::Pad {
                pad: 0,
                payload: payload.len(),
            });
        }
        match self {
            Self::MpWrite { reth, .. } if reth.length as usize != payload.len() => {
                Err(WireError::Length {
                    header: "RETH",
                    stated: reth.length as usize,
                    actual: payload.len(),
                })
            }
            _ => Ok(()),
        }
    }
}

impl<'a> Frame<'a> {
    /// Reads a frame. The ICRC is not looked at: that is [`icrc::check_icrc`]. A UDP checksum is not verified, for the
    /// ICRC covers the same bytes.
    ///
    /// # Errors
    /// When `frame` is cut short, is not RoCEv2, or breaks a rule of its headers.
    pub fn parse(frame: &'a [u8]) -> Result<Self, WireError> {
        let at = locate(frame)?;
        let outer = ethernet::Repr::parse(frame)?;
        let (tag, ethertype) = if outer.ethertype == ethernet::VLAN {
            let tag = vlan::Repr::parse(&frame[ethernet::LEN..])?;
            (
                Some(Tag {
                    pcp: tag.pcp,
                    dei: tag.dei,
                    vid: tag.vid,
                }),
                tag.ethertype,
            )
        } else {
            (None, outer.ethertype)
        };
        let (address, dscp, ecn, hop_limit) = if ethertype == ethernet::IPV4 {
            let ip = ipv4::Repr::parse(&frame[at.ip..])?;
            let address = Address::V4 {
                src: ip.src,
                dst: ip.dst,
                id: ip.id,
                dont_fragment: ip.dont_fragment,
            };
            (address, ip.dscp, ip.ecn, ip.ttl)
        } else {
            let ip = ipv6::Repr::parse(&frame[at.ip..])?;
            let address = Address::V6 {
                src: ip.src,
                dst: ip.dst,
                flow_label: ip.flow_label,
            };
            (address, ip.dscp, ip.ecn, ip.hop_limit)
        };
        let header = bth::Repr::parse(&frame[at.bth..])?;
        if header.version != 0 {
            return Err(value("BTH", &bth::VERSION, header.version.into()));
        }
        Ok(Self {
            dst_mac: outer.dst,
            src_mac: outer.src,
            tag,
            address,
            dscp,
            ecn,
            hop_limit,
            src_port: udp::Repr::parse(&frame[at.udp..])?.src_port,
            bth: Transport {
                opcode: header.opcode,
                solicited: header.solicited,
                migrated: header.migrated,
                pkey: header.pkey,
                fecn: header.fecn,
                becn: header.becn,
                dqpn: header.dqpn,
                ack_req: header.ack_req,
                psn: header.psn,
            },
            body: Body::parse(&header, &frame[at.bth + bth::LEN..at.icrc])?,
        })
    }

    fn envelope(&self) -> Envelope {
        let ip = ethernet::LEN + self.tag.map_or(0, |_| vlan::LEN);
        let udp = ip
            + match self.address {
                Address::V4 { .. } => ipv4::LEN,
                Address::V6 { .. } => ipv6::LEN,
            };
        let bth = udp + udp::LEN;
        Envelope {
            ip,
            udp,
            bth,
            icrc: bth + bth::LEN + self.body.len(),
        }
    }

    /// Size of the frame in bytes, without FCS and without the padding that the MAC adds to very short ones.
    #[must_use]
    pub fn wire_len(&self) -> usize {
        self.envelope().icrc + icrc::LEN
    }

    /// Writes the frame at the start of `bytes`, with pad, lengths, IPv4 checksum, UDP checksum 0 and ICRC, and
    /// returns its size in bytes.
    ///
    /// # Errors
    /// When `bytes` is too short, or the body is not what the opcode wants.
    pub fn emit(&self, bytes: &mut [u8]) -> Result<usize, WireError> {
        self.body.check(self.bth.opcode)?;
        let at = self.envelope();
        let len = at.icrc + icrc::LEN;
        let have = bytes.len();
        let bytes = bytes.get_mut(..len).ok_or(WireError::Truncated {
            header: "frame",
            need: len,
            have,
        })?;
        bytes.fill(0);
        self.emit_link(bytes)?;
        self.emit_network(&mut bytes[at.ip..])?;
        udp::Repr {
            src_port: self.src_port,
            dst_port: udp::ROCE_PORT,
            length: (len - at.udp) as u16,
            checksum: 0,
        }
        .emit(&mut bytes[at.udp..])?;
        let (extensions, payload) = self.body.split();
        self.emit_bth(payload.len(), &mut bytes[at.bth..])?;
        let mut writer = Writer {
            bytes,
            at: at.bth + bth::LEN,
        };
        extensions.emit(&mut writer)?;
        let start = writer.at;
        bytes[start..start + payload.len()].copy_from_slice(payload);
        let crc = icrc::of(bytes, &at);
        bytes[at.icrc..].copy_from_slice(&crc.to_le_bytes());
        Ok(len)
    }

    fn emit_link(&self, bytes: &mut [u8]) -> Result<(), WireError> {
        let ethertype = match self.address {
            Address::V4 { .. } => ethernet::IPV4,
            Address::V6 { .. } => ethernet::IPV6,
        };
        ethernet::Repr {
            dst: self.dst_mac,
            src: self.src_mac,
            ethertype: self.tag.map_or(ethertype, |_| ethernet::VLAN),
        }
        .emit(bytes)?;
        match self.tag {
            Some(Tag { pcp, dei, vid }) => vlan::Repr {
                pcp,
                dei,
                vid,
                ethertype,
            }
            .emit(&mut bytes[ethernet::LEN..]),
            None => Ok(()),
        }
    }

    /// `bytes` is the whole IP packet.
    fn emit_network(&self, bytes: &mut [u8]) -> Result<(), WireError> {
        match self.address {
            Address::V4 {
                src,
                dst,
                id,
                dont_fragment,
            } => ipv4::Repr {
                dscp: self.dscp,
                ecn: self.ecn,
                total_len: bytes.len() as u16,
                id,
                dont_fragment,
                ttl: self.hop_limit,
                protocol: ipv4::UDP,
                src,
                dst,
            }
            .emit(bytes),
            Address::V6 {
                src,
                dst,
                flow_label,
            } => ipv6::Repr {
                dscp: self.dscp,
                ecn: self.ecn,
                flow_label,
                payload_len: (bytes.len() - ipv6::LEN) as u16,
                next_header: ipv4::UDP,
                hop_limit: self.hop_limit,
                src,
                dst,
            }
            .emit(bytes),
        }
    }

    fn emit_bth(&self, payload: usize, bytes: &mut [u8]) -> Result<(), WireError> {
        bth::Repr {
            opcode: self.bth.opcode,
            solicited: self.bth.solicited,
            migrated: self.bth.migrated,
            pad: (payload.next_multiple_of(4) - payload) as u8,
            version: 0,
            pkey: self.bth.pkey,
            fecn: self.bth.fecn,
            becn: self.bth.becn,
            dqpn: self.bth.dqpn,
            ack_req: self.bth.ack_req,
            psn: self.bth.psn,
        }
        .emit(bytes)
    }
}

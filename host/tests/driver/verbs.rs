//! The verbs interface as an application uses it.

use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mprdma_host::memory::{Memory, MemoryError, PageSize};
use mprdma_host::port::{Gid, Mac};
use mprdma_host::verbs::{
    Access, AddressHandle, AsyncEvent, Context, ContextAttr, Cq, InitAttr, Mode, Mr, Mtu,
    MultiPath, Pd, Qp, QpInitAttr, RecvWr, RtrAttr, RtsAttr, SendFlags, SendWr, Vlan, Wc,
};
use mprdma_host::Error;
use mprdma_spec::command::{QpState, Status};
use mprdma_spec::counter::Counter;
use mprdma_spec::csr;
use mprdma_spec::descriptor::{WcOpcode, WrOpcode};
use mprdma_spec::status::WcStatus;

use crate::fake_card::{Fabric, FakeDevice, Shared, Traits};
use crate::served::Directory;

pub const LIMIT: Duration = Duration::from_secs(20);
pub const REGION: usize = 3 << 20;

/// One end of a connection.
pub struct End {
    pub context: Context,
    pub pd: Pd,
    pub cq: Cq,
    pub qp: Qp,
    pub mr: Mr,
}

pub fn mac(card: usize) -> Mac {
    Mac([2, 0, 0, 0, 0, card as u8 + 1])
}

pub fn gid(card: usize) -> Gid {
    Gid::from(std::net::IpAddr::from([10, 0, 0, card as u8 + 1]))
}

pub fn mtu() -> Mtu {
    Mtu::new(1024).unwrap()
}

pub fn rtr(peer: usize, qpn: u32) -> RtrAttr {
    RtrAttr {
        path_mtu: mtu(),
        dest_qp_num: qpn,
        rq_psn: 0x00ab_cdef,
        ah_attr: AddressHandle {
            dmac: mac(peer),
            sgid: gid(1 - peer),
            dgid: gid(peer),
            vlan: None,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
        },
    }
}

impl End {
    pub fn new(fabric: &Shared, card: usize, depth: usize, cqes: usize) -> Self {
        let device = FakeDevice::new(fabric, card);
        let context = Context::open(
            device,
            &ContextAttr {
                mac: Some(mac(card)),
                ..ContextAttr::default()
            },
        )
        .unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(cqes).unwrap();
        let attr = QpInitAttr {
            send_cq: &cq,
            recv_cq: &cq,
            max_send_wr: depth,
            max_recv_wr: depth,
            mode: Mode::Mp,
            path_mtu: mtu(),
        };
        let qp = pd.create_qp(&attr).unwrap();
        let memory = Arc::new(Memory::allocate(REGION + 1, PageSize::Small).unwrap());
        let mr = pd
            .register(
                &memory,
                1,
                REGION,
                Access::LOCAL_WRITE | Access::REMOTE_WRITE,
            )
            .unwrap();
        Self {
            context,
            pd,
            cq,
            qp,
            mr,
        }
    }

    /// Two ends, connected and ready to send.
    pub fn pair(depth: usize, cqes: usize) -> (Self, Self, Shared) {
        let fabric = Fabric::new(2, Traits::default());
        let (a, b) = (
            Self::new(&fabric, 0, depth, cqes),
            Self::new(&fabric, 1, depth, cqes),
        );
        a.connect(1, b.qp.qp_num());
        b.connect(0, a.qp.qp_num());
        (a, b, fabric)
    }

    pub fn connect(&self, peer: usize, qpn: u32) {
        self.qp.modify_to_init(&InitAttr::default()).unwrap();
        self.qp.modify_to_rtr(&rtr(peer, qpn)).unwrap();
        self.qp.modify_to_rts(&RtsAttr::new(0x00ab_cdef)).unwrap();
    }

    /// A signaled WRITE of `length` bytes from our `from` to the peer's `to`.
    pub fn write_wr(
        &self,
        wr_id: u64,
        from: usize,
        peer: &Self,
        to: usize,
        length: usize,
    ) -> SendWr {
        SendWr {
            wr_id,
            opcode: WrOpcode::RdmaWrite,
            flags: SendFlags {
                signaled: true,
                ..SendFlags::default()
            },
            addr: self.mr.addr() + from as u64,
            length: length as u64,
            lkey: self.mr.lkey(),
            remote_addr: peer.mr.addr() + to as u64,
            rkey: peer.mr.rkey(),
            imm: 0,
            compare_add: 0,
            swap: 0,
        }
    }

    /// Polls until `count` completions are there.
    pub fn completions(&self, count: usize) -> Vec<Wc> {
        let (start, mut all) = (Instant::now(), Vec::new());
        while all.len() < count {
            assert!(
                start.elapsed() < LIMIT,
                "only {} of {count} completions",
                all.len()
            );
            all.extend(self.cq.poll(count - all.len()).unwrap());
            self.context.device().relax().unwrap();
        }
        all
    }
}

/// Bytes that differ from place to place.
pub fn pattern(length: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(0x915f_77f5).wrapping_add(12345);
        (state >> 24) as u8
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn writes_of_every_size_arrive_at_odd_addresses() {
    let (a, b, _) = End::pair(16, 16);
    for (i, length) in [0, 1, 4095, 4096, 4097, (1 << 20) + 13, 2 << 20]
        .into_iter()
        .enumerate()
    {
        let data = pattern(length, i as u32);
        let (from, to) = (3 + i, 17 * i + 1);
        a.mr.write(from, &data).unwrap();
        b.mr.write(0, &vec![0xee; REGION]).unwrap();
        a.qp.post_send(&[a.write_wr(i as u64, from, &b, to, length)])
            .unwrap();
        let wc = a.completions(1)[0];
        assert_eq!(
            (wc.wr_id, wc.status, wc.opcode),
            (i as u64, WcStatus::Success, Some(WcOpcode::RdmaWrite))
        );
        assert_eq!((wc.byte_len as usize, wc.qp_num), (length, a.qp.qp_num()));
        let mut got = vec![0; REGION];
        b.mr.read(0, &mut got).unwrap();
        assert!(got[to..to + length] == data[..], "{length} bytes");
        assert!(
            got[..to]
                .iter()
                .chain(&got[to + length..])
                .all(|byte| *byte == 0xee),
            "neighbours of {length} bytes"
        );
    }
}

/// A signaled READ of `length` bytes from the peer's `from` to our `to`.
fn read_wr(a: &End, wr_id: u64, to: usize, b: &End, from: usize, length: usize) -> SendWr {
    SendWr {
        opcode: WrOpcode::RdmaRead,
        ..a.write_wr(wr_id, to, b, from, length)
    }
}

/// What `End` makes, but for reading.
fn reading_pair() -> (End, End, Shared) {
    pair_with(Access::LOCAL_WRITE | Access::REMOTE_READ, 1)
}

/// What `End` makes, with these rights, of regions that begin so many bytes into a page.
fn pair_with(access: Access, offset: usize) -> (End, End, Shared) {
    let (mut a, mut b, fabric) = End::pair(16, 16);
    for (end, peer) in [(&mut a, 1), (&mut b, 0)] {
        let memory = Arc::new(Memory::allocate(REGION + offset, PageSize::Small).unwrap());
        end.mr = end.pd.register(&memory, offset, REGION, access).unwrap();
        let peer_qpn = end.qp.qp_num();
        end.qp.modify_to_reset().unwrap();
        end.qp
            .modify_to_init(&InitAttr {
                qp_access_flags: access,
                ..InitAttr::default()
            })
            .unwrap();
        // Both have the same number.
        end.qp.modify_to_rtr(&rtr(peer, peer_qpn)).unwrap();
        end.qp.modify_to_rts(&RtsAttr::new(7)).unwrap();
    }
    (a, b, fabric)
}

#[test]
fn reads_of_every_size_arrive_at_odd_addresses() {
    let (a, b, _) = reading_pair();
    for (i, length) in [0, 1, 4095, 4097, (1 << 20) + 13].into_iter().enumerate() {
        let data = pattern(length, i as u32);
        let (to, from) = (3 + i, 17 * i + 1);
        a.mr.write(0, &vec![0xee; REGION]).unwrap();
        b.mr.write(from, &data).unwrap();
        a.qp.post_send(&[read_wr(&a, i as u64, to, &b, from, length)])
            .unwrap();
        let wc = a.completions(1)[0];
        assert_eq!(
            (wc.wr_id, wc.status, wc.opcode, wc.byte_len as usize),
            (
                i as u64,
                WcStatus::Success,
                Some(WcOpcode::RdmaRead),
                length
            )
        );
        let mut got = vec![0; REGION];
        a.mr.read(0, &mut got).unwrap();
        assert!(got[to..to + length] == data[..], "{length} bytes");
        assert!(got[..to]
            .iter()
            .chain(&got[to + length..])
            .all(|b| *b == 0xee));
    }
}

#[test]
fn a_read_needs_its_rights_and_a_length_that_offsets_reach() {
    let (a, b, _) = reading_pair();
    let memory = Arc::new(Memory::allocate(100, PageSize::Small).unwrap());
    let constant = a.pd.register(&memory, 0, 100, Access::NONE).unwrap();
    let into_constant = SendWr {
        lkey: constant.lkey(),
        addr: constant.addr(),
        ..read_wr(&a, 1, 0, &b, 0, 10)
    };
    let too_long = SendWr {
        length: (1 << 26) + 1,
        ..into_constant
    };
    let max = 1 << 26;
    match a.qp.post_send(&[into_constant, too_long]) {
        Err(Error::MessageTooLong { bytes, max: most }) => {
            assert_eq!((bytes, most), (max + 1, max));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(a.qp.send_outstanding(), 0, "nothing was posted");
    a.qp.post_send(&[into_constant]).unwrap();
    let wc = a.completions(1)[0];
    assert_eq!(wc.status, WcStatus::LocalProtectionError);
    assert_eq!(wc.opcode, Some(WcOpcode::RdmaRead));

    // The peer allows writing only.
    let (a, b, _) = End::pair(4, 16);
    a.qp.post_send(&[read_wr(&a, 1, 0, &b, 0, 10)]).unwrap();
    assert_eq!(a.completions(1)[0].status, WcStatus::RemoteAccessError);
}

/// A signaled ATOMIC on the 8 bytes at the peer's `from`, whose answer goes to our `to`.
fn atomic_wr(a: &End, to: usize, b: &End, from: usize, opcode: WrOpcode) -> SendWr {
    SendWr {
        opcode,
        compare_add: 5,
        swap: 77,
        ..a.write_wr(9, to, b, from, 8)
    }
}

fn atomic_pair() -> (End, End, Shared) {
    pair_with(Access::LOCAL_WRITE | Access::REMOTE_ATOMIC, 0)
}

#[test]
fn atomics_map_the_operands_of_verbs() {
    use WrOpcode::{AtomicCmpAndSwp, AtomicFetchAndAdd};
    let (a, b, _) = atomic_pair();
    for (opcode, held, expected) in [
        (AtomicFetchAndAdd, 1000, 1005),
        (AtomicFetchAndAdd, u64::MAX, 4),
        (AtomicCmpAndSwp, 5, 77),
        (AtomicCmpAndSwp, 77, 77),
        (AtomicCmpAndSwp, 5 << 56, 5 << 56),
    ] {
        b.mr.write(64, &u64::to_le_bytes(held)).unwrap();
        a.mr.write(0, &[0xee; 32]).unwrap();
        a.qp.post_send(&[atomic_wr(&a, 13, &b, 64, opcode)])
            .unwrap();
        let wc = a.completions(1)[0];
        let found = match opcode {
            AtomicFetchAndAdd => WcOpcode::FetchAdd,
            _ => WcOpcode::CompSwap,
        };
        assert_eq!(
            (wc.wr_id, wc.status, wc.opcode, wc.byte_len),
            (9, WcStatus::Success, Some(found), 8)
        );
        let (mut here, mut there) = ([0; 32], [0; 8]);
        a.mr.read(0, &mut here).unwrap();
        b.mr.read(64, &mut there).unwrap();
        assert_eq!(here[13..21], held.to_le_bytes());
        assert!(here[..13].iter().chain(&here[21..]).all(|b| *b == 0xee));
        assert_eq!(u64::from_le_bytes(there), expected, "{opcode:?} {held:#x}");
    }
}

#[test]
fn an_atomic_that_no_card_does_is_not_posted() {
    let (a, b, _) = atomic_pair();
    let good = atomic_wr(&a, 0, &b, 64, WrOpcode::AtomicFetchAndAdd);
    for length in [0, 4, 7, 9, 16, u64::MAX] {
        let bad = SendWr { length, ..good };
        let error = a.qp.post_send(&[good, bad]).unwrap_err();
        assert!(matches!(error, Error::AtomicLength { bytes } if bytes == length));
        assert!(error.to_string().contains("set length to 8"), "{error}");
    }
    for past in 1..8 {
        let addr = good.remote_addr + past;
        let bad = SendWr {
            remote_addr: addr,
            ..good
        };
        let error = a.qp.post_send(&[good, bad]).unwrap_err();
        assert!(matches!(error, Error::AtomicAddress { addr: told } if told == addr));
        assert!(error.to_string().contains("a multiple of 8"), "{error}");
    }
    assert_eq!(a.qp.send_outstanding(), 0, "nothing was posted");
}

#[test]
fn an_atomic_needs_its_rights() {
    let (a, b, _) = atomic_pair();
    let memory = Arc::new(Memory::allocate(100, PageSize::Small).unwrap());
    let constant = a.pd.register(&memory, 0, 100, Access::NONE).unwrap();
    a.qp.post_send(&[SendWr {
        lkey: constant.lkey(),
        addr: constant.addr(),
        ..atomic_wr(&a, 0, &b, 64, WrOpcode::AtomicCmpAndSwp)
    }])
    .unwrap();
    let wc = a.completions(1)[0];
    assert_eq!(
        (wc.status, wc.opcode),
        (WcStatus::LocalProtectionError, Some(WcOpcode::CompSwap))
    );
    // The right to write and to read is not enough.
    let others = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let (a, b, _) = pair_with(others, 0);
    a.qp.post_send(&[atomic_wr(&a, 0, &b, 64, WrOpcode::AtomicFetchAndAdd)])
        .unwrap();
    assert_eq!(a.completions(1)[0].status, WcStatus::RemoteAccessError);
}

/// A card of the version before, which can do all else.
#[test]
fn a_card_that_knows_no_atomics_gets_none() {
    let fabric = Fabric::new(
        2,
        Traits {
            version: csr::VERSION_ATOMIC - 1,
            ..Traits::default()
        },
    );
    let (a, b) = (End::new(&fabric, 0, 4, 16), End::new(&fabric, 1, 4, 16));
    a.connect(1, b.qp.qp_num());
    b.connect(0, a.qp.qp_num());
    let error =
        a.qp.post_send(&[atomic_wr(&a, 0, &b, 7, WrOpcode::AtomicFetchAndAdd)])
            .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the card speaks version 1.1 and ATOMICs need 1.2: load a newer image into the card"
    );
    assert_eq!(a.qp.send_outstanding(), 0);
    a.qp.post_send(&[a.write_wr(1, 0, &b, 0, 8)]).unwrap();
    assert_eq!(a.completions(1)[0].status, WcStatus::Success);
}

#[test]
fn an_immediate_takes_a_receive_request_and_tells_the_receiver() {
    let (a, b, _) = End::pair(4, 16);
    b.qp.post_recv(&[RecvWr {
        wr_id: 77,
        ..RecvWr::default()
    }])
    .unwrap();
    let request = SendWr {
        opcode: WrOpcode::RdmaWriteWithImm,
        imm: 0x1122_3344,
        ..a.write_wr(1, 0, &b, 0, 10)
    };
    a.qp.post_send(&[request]).unwrap();
    a.completions(1);
    let wc = b.completions(1)[0];
    assert_eq!(
        (wc.wr_id, wc.opcode, wc.imm),
        (77, Some(WcOpcode::RecvRdmaWithImm), Some(0x1122_3344))
    );
    assert_eq!((wc.byte_len, wc.qp_num), (10, b.qp.qp_num()));
}

#[test]
fn a_receive_request_posted_before_the_queue_pair_receives_counts() {
    let fabric = Fabric::new(2, Traits::default());
    let (a, b) = (End::new(&fabric, 0, 4, 16), End::new(&fabric, 1, 4, 16));
    assert!(matches!(
        b.qp.post_recv(&[RecvWr::default()]),
        Err(Error::WrongState {
            state: QpState::Reset,
            ..
        })
    ));
    b.qp.modify_to_init(&InitAttr::default()).unwrap();
    b.qp.post_recv(&[RecvWr {
        wr_id: 5,
        ..RecvWr::default()
    }])
    .unwrap();
    b.qp.modify_to_rtr(&rtr(0, a.qp.qp_num())).unwrap();
    a.connect(1, b.qp.qp_num());
    a.qp.post_send(&[SendWr {
        opcode: WrOpcode::RdmaWriteWithImm,
        ..a.write_wr(1, 0, &b, 0, 0)
    }])
    .unwrap();
    assert_eq!(b.completions(1)[0].wr_id, 5);
}

#[test]
fn completion_by_interrupt() {
    let (a, b, _) = End::pair(4, 16);
    let started = a.cq.wait(4, Duration::from_millis(60));
    assert!(matches!(
        started,
        Err(Error::Timeout {
            what: "completion",
            ..
        })
    ));
    a.qp.post_send(&[a.write_wr(9, 0, &b, 0, 5000)]).unwrap();
    let wcs = a.cq.wait(4, LIMIT).unwrap();
    assert_eq!(wcs.iter().map(|wc| wc.wr_id).collect::<Vec<_>>(), [9]);
}

#[test]
fn what_a_request_may_not_do_fails_it_and_its_queue_pair_alone() {
    type Break = fn(&End, &End, SendWr) -> SendWr;
    let cases: [(&str, WcStatus, Break); 6] = [
        ("remote key", WcStatus::RemoteAccessError, |_, _, wr| {
            SendWr {
                rkey: wr.rkey + 1,
                ..wr
            }
        }),
        ("remote bounds", WcStatus::RemoteAccessError, |_, _, wr| {
            SendWr {
                remote_addr: wr.remote_addr + 1,
                ..wr
            }
        }),
        (
            "below the region",
            WcStatus::RemoteAccessError,
            |_, b, wr| SendWr {
                remote_addr: b.mr.addr() - 1,
                length: 1,
                ..wr
            },
        ),
        ("local key", WcStatus::LocalProtectionError, |_, _, wr| {
            SendWr { lkey: 0, ..wr }
        }),
        (
            "local bounds",
            WcStatus::LocalProtectionError,
            |_, _, wr| SendWr {
                length: wr.length + 1,
                ..wr
            },
        ),
        ("stale key", WcStatus::LocalProtectionError, |_, _, wr| {
            SendWr {
                lkey: wr.lkey ^ 1,
                ..wr
            }
        }),
    ];
    for (name, status, change) in cases {
        let (a, b, _) = End::pair(4, 16);
        let good = a.write_wr(1, 0, &b, 0, REGION);
        a.qp.post_send(&[change(&a, &b, good), a.write_wr(2, 0, &b, 0, 1)])
            .unwrap();
        let wcs = a.completions(2);
        assert_eq!(
            [wcs[0].status, wcs[1].status],
            [status, WcStatus::WorkRequestFlushed],
            "{name}"
        );
        assert_eq!([wcs[0].wr_id, wcs[1].wr_id], [1, 2]);
        assert_eq!(a.qp.state(), QpState::Error, "{name}");
        let events = a.context.poll_events().unwrap();
        assert_eq!(
            events,
            [AsyncEvent::QpFatal {
                qpn: a.qp.qp_num(),
                status: Some(status)
            }],
            "{name}"
        );
        if status == WcStatus::RemoteAccessError {
            assert_eq!(
                b.context.wait_event(LIMIT).unwrap(),
                [AsyncEvent::QpAccess { qpn: b.qp.qp_num() }]
            );
            assert_eq!(b.qp.state(), QpState::Error);
        }
        // Through RESET both work again.
        for (end, peer, qpn) in [(&a, 1, b.qp.qp_num()), (&b, 0, a.qp.qp_num())] {
            end.qp.modify_to_reset().unwrap();
            end.connect(peer, qpn);
        }
        a.qp.post_send(&[a.write_wr(3, 0, &b, 0, 1)]).unwrap();
        assert_eq!(a.completions(1)[0].status, WcStatus::Success, "{name}");
    }
}

#[test]
fn rights_and_domains_are_kept() {
    let (a, b, _) = End::pair(4, 16);
    let memory = Arc::new(Memory::allocate(100, PageSize::Small).unwrap());
    let read_only = b.pd.register(&memory, 0, 100, Access::NONE).unwrap();
    let request = SendWr {
        rkey: read_only.rkey(),
        remote_addr: read_only.addr(),
        ..a.write_wr(1, 0, &b, 0, 10)
    };
    a.qp.post_send(&[request]).unwrap();
    assert_eq!(a.completions(1)[0].status, WcStatus::RemoteAccessError);

    let (a, b, _) = End::pair(4, 16);
    let elsewhere = a
        .context
        .alloc_pd()
        .unwrap()
        .register(&memory, 0, 100, Access::LOCAL_WRITE)
        .unwrap();
    a.qp.post_send(&[SendWr {
        lkey: elsewhere.lkey(),
        addr: elsewhere.addr(),
        ..a.write_wr(1, 0, &b, 0, 10)
    }])
    .unwrap();
    assert_eq!(a.completions(1)[0].status, WcStatus::LocalProtectionError);
}

#[test]
fn what_a_peer_writes_to_a_registered_file_is_in_the_file() {
    let (a, b, _) = End::pair(4, 16);
    let directory = Directory::new();
    let path = directory.path("file");
    std::fs::write(&path, vec![0x55; 10_001]).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let memory = Arc::new(Memory::from_file(file).unwrap());
    let region =
        b.pd.register(
            &memory,
            4999,
            5002,
            Access::LOCAL_WRITE | Access::REMOTE_WRITE,
        )
        .unwrap();
    let data = pattern(5002, 3);
    a.mr.write(0, &data).unwrap();
    let request = SendWr {
        rkey: region.rkey(),
        remote_addr: region.addr(),
        ..a.write_wr(1, 0, &b, 0, 5002)
    };
    a.qp.post_send(&[request]).unwrap();
    assert_eq!(a.completions(1)[0].status, WcStatus::Success);
    let content = std::fs::read(&path).unwrap();
    assert!(
        content.len() == 10_001
            && content[4999..] == data
            && content[..4999].iter().all(|byte| *byte == 0x55)
    );
    let read_only = File::open(&path).unwrap();
    assert!(matches!(
        Memory::from_file(read_only),
        Err(MemoryError::MapFile { .. })
    ));
}

#[test]
fn a_key_does_not_outlive_its_region() {
    let (a, b, _) = End::pair(4, 16);
    let memory = Arc::new(Memory::allocate(100, PageSize::Small).unwrap());
    let region =
        b.pd.register(&memory, 7, 50, Access::LOCAL_WRITE | Access::REMOTE_WRITE)
            .unwrap();
    let (rkey, addr) = (region.rkey(), region.addr());
    assert_eq!(addr % 8, 7);
    drop(region);
    a.qp.post_send(&[SendWr {
        rkey,
        remote_addr: addr,
        ..a.write_wr(1, 0, &b, 0, 10)
    }])
    .unwrap();
    assert_eq!(a.completions(1)[0].status, WcStatus::RemoteAccessError);
}

#[test]
fn states_are_walked_in_order() {
    let fabric = Fabric::new(2, Traits::default());
    let a = End::new(&fabric, 0, 4, 16);
    let wrong = |result: Result<(), Error>, state: QpState| {
        assert!(matches!(result, Err(Error::WrongState { state: s, .. }) if s == state));
    };
    let write = a.write_wr(1, 0, &a, 0, 1);
    wrong(a.qp.modify_to_rtr(&rtr(1, 2)), QpState::Reset);
    wrong(a.qp.modify_to_rts(&RtsAttr::new(0)), QpState::Reset);
    wrong(a.qp.modify_to_error(), QpState::Reset);
    wrong(a.qp.post_send(&[write]), QpState::Reset);
    a.qp.modify_to_init(&InitAttr::default()).unwrap();
    wrong(a.qp.modify_to_rts(&RtsAttr::new(0)), QpState::Init);
    wrong(a.qp.post_send(&[write]), QpState::Init);
    a.qp.modify_to_rtr(&rtr(1, 2)).unwrap();
    wrong(a.qp.post_send(&[write]), QpState::Rtr);
    wrong(a.qp.modify_to_init(&InitAttr::default()), QpState::Rtr);
    a.qp.modify_to_rts(&RtsAttr::new(0)).unwrap();
    assert_eq!(
        (a.qp.state(), a.qp.query().unwrap().state),
        (QpState::Rts, "RTS")
    );
    a.qp.modify_to_error().unwrap();
    a.qp.post_send(&[write]).unwrap();
    assert_eq!(a.completions(1)[0].status, WcStatus::WorkRequestFlushed);
}

fn receives(range: std::ops::Range<u64>) -> Vec<RecvWr> {
    let receive = |wr_id| RecvWr {
        wr_id,
        ..RecvWr::default()
    };
    range.map(receive).collect()
}

#[test]
fn receive_requests_are_flushed_in_error_after_what_came() {
    let (a, b, _) = End::pair(8, 16);
    b.qp.post_recv(&receives(0..5)).unwrap();
    let with_imm = SendWr {
        opcode: WrOpcode::RdmaWriteWithImm,
        ..a.write_wr(1, 0, &b, 0, 10)
    };
    a.qp.post_send(&[with_imm; 2]).unwrap();
    assert_eq!(a.completions(2).len(), 2);
    // The two completions are in the ring already.
    b.qp.modify_to_error().unwrap();
    let got = |count| -> Vec<(u64, WcStatus)> {
        let completions = b.completions(count);
        completions.iter().map(|wc| (wc.wr_id, wc.status)).collect()
    };
    let flushed = WcStatus::WorkRequestFlushed;
    assert_eq!(
        got(5),
        [
            (0, WcStatus::Success),
            (1, WcStatus::Success),
            (2, flushed),
            (3, flushed),
            (4, flushed)
        ]
    );
    b.qp.post_recv(&receives(5..7)).unwrap();
    assert_eq!(b.cq.poll(1).unwrap()[0].wr_id, 5);
    assert_eq!(got(1), [(6, flushed)]);
    assert!(b.cq.poll(9).unwrap().is_empty());
    b.qp.modify_to_reset().unwrap();
    b.qp.modify_to_init(&InitAttr::default()).unwrap();
    b.qp.post_recv(&receives(7..8)).unwrap();
    assert!(b.cq.poll(9).unwrap().is_empty(), "it is in order again");
}

#[test]
fn a_completion_of_what_was_not_posted_stops_the_queue_pair_alone() {
    let (a, b, fabric) = End::pair(8, 16);
    b.qp.post_recv(&receives(0..1)).unwrap();
    for _ in 0..3 {
        fabric.lock().unwrap().cards[1].complete_receive(b.qp.qp_num());
    }
    // What came before is not lost.
    assert_eq!(b.cq.poll(9).unwrap()[0].wr_id, 0);
    let error = b.cq.poll(9).unwrap_err();
    assert!(
        matches!(error, Error::UnpostedReceive { qpn, index: 1 } if qpn == b.qp.qp_num()),
        "{error}"
    );
    assert_eq!(b.qp.state(), QpState::Error);
    assert!(b.cq.poll(9).unwrap().is_empty(), "once is enough");
    a.qp.post_send(&[a.write_wr(1, 0, &b, 0, 10)]).unwrap();
    assert_eq!(a.completions(1)[0].status, WcStatus::RetryExceeded);
}

#[test]
fn another_mtu_at_rtr_is_taken() {
    let fabric = Fabric::new(2, Traits::default());
    let a = End::new(&fabric, 0, 4, 16);
    a.qp.modify_to_init(&InitAttr::default()).unwrap();
    a.qp.modify_to_rtr(&RtrAttr {
        path_mtu: Mtu::new(4096).unwrap(),
        ..rtr(1, 2)
    })
    .unwrap();
    assert_eq!(a.qp.summary().path_mtu, 4096);
    assert_eq!(a.qp.query().unwrap().state, "RTR");
}

#[test]
fn parameters_outside_their_range_are_named() {
    let fabric = Fabric::new(1, Traits::default());
    let a = End::new(&fabric, 0, 4, 16);
    a.qp.modify_to_init(&InitAttr::default()).unwrap();
    let address = rtr(1, 2).ah_attr;
    for (text, attr) in [
        (
            "rq_psn is 16777216; it must lie between 0 and 16777215",
            RtrAttr {
                rq_psn: 1 << 24,
                ..rtr(1, 2)
            },
        ),
        (
            "dest_qp_num is 16777216",
            RtrAttr {
                dest_qp_num: 1 << 24,
                ..rtr(1, 2)
            },
        ),
        (
            "hop_limit is 0",
            RtrAttr {
                ah_attr: AddressHandle {
                    hop_limit: 0,
                    ..address
                },
                ..rtr(1, 2)
            },
        ),
        (
            "flow_label is 1048576",
            RtrAttr {
                ah_attr: AddressHandle {
                    flow_label: 1 << 20,
                    ..address
                },
                ..rtr(1, 2)
            },
        ),
        (
            "vlan is 4095",
            RtrAttr {
                ah_attr: AddressHandle {
                    vlan: Some(Vlan {
                        id: 4095,
                        priority: 0,
                    }),
                    ..address
                },
                ..rtr(1, 2)
            },
        ),
        (
            "both be IPv4 or both IPv6",
            RtrAttr {
                ah_attr: AddressHandle {
                    dgid: Gid("fd00::1".parse().unwrap()),
                    ..address
                },
                ..rtr(1, 2)
            },
        ),
        (
            "dmac must name one station",
            RtrAttr {
                ah_attr: AddressHandle {
                    dmac: Mac([0xff; 6]),
                    ..address
                },
                ..rtr(1, 2)
            },
        ),
    ] {
        let error = a.qp.modify_to_rtr(&attr).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
    a.qp.modify_to_rtr(&rtr(1, 2)).unwrap();
    let paths = MultiPath::default();
    for (text, attr) in [
        ("sq_psn is 16777216", RtsAttr::new(1 << 24)),
        (
            "rto_floor is 0; it must lie between 1 and 32767",
            RtsAttr {
                timeout: 0,
                ..RtsAttr::new(0)
            },
        ),
        (
            "retry_cnt is 8; it must lie between 0 and 7",
            RtsAttr {
                retry_cnt: 8,
                ..RtsAttr::new(0)
            },
        ),
        (
            "rnr_retry is 8",
            RtsAttr {
                rnr_retry: 8,
                ..RtsAttr::new(0)
            },
        ),
        (
            "vp_count is 0",
            RtsAttr {
                multi_path: MultiPath {
                    vp_count: 0,
                    ..paths
                },
                ..RtsAttr::new(0)
            },
        ),
        (
            "vp_count is 64; it must lie between 1 and 36",
            RtsAttr {
                multi_path: MultiPath {
                    vp_base: 65500,
                    ..paths
                },
                ..RtsAttr::new(0)
            },
        ),
        (
            "delta is 128",
            RtsAttr {
                multi_path: MultiPath {
                    delta: 128,
                    ..paths
                },
                ..RtsAttr::new(0)
            },
        ),
        (
            "cwnd_max is 2048",
            RtsAttr {
                multi_path: MultiPath {
                    cwnd_max: 2048,
                    ..paths
                },
                ..RtsAttr::new(0)
            },
        ),
    ] {
        let error = a.qp.modify_to_rts(&attr).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
    assert_eq!(a.qp.state(), QpState::Rtr);
    assert!(matches!(Mtu::new(1500), Err(Error::Mtu { bytes: 1500 })));
    assert!(matches!(
        a.context.create_cq(0),
        Err(Error::Parameter { name: "cqe", .. })
    ));
    assert!(matches!(
        a.context.create_cq(32_769),
        Err(Error::Parameter { name: "cqe", .. })
    ));
    let memory = Arc::new(Memory::allocate(100, PageSize::Small).unwrap());
    assert!(matches!(
        a.pd.register(&memory, 4000, 97, Access::NONE),
        Err(Error::RegionBounds { .. })
    ));
}

#[test]
fn what_the_card_refuses_is_told() {
    let fabric = Fabric::new(2, Traits::default());
    let a = End::new(&fabric, 0, 4, 16);
    let attr = QpInitAttr {
        send_cq: &a.cq,
        recv_cq: &a.cq,
        max_send_wr: 1,
        max_recv_wr: 1,
        mode: Mode::Rc,
        path_mtu: mtu(),
    };
    assert!(matches!(
        a.pd.create_qp(&attr),
        Err(Error::Command {
            status: Status::BadArgument,
            ..
        })
    ));
    assert!(matches!(
        a.context.query_qp(99),
        Err(Error::Command {
            status: Status::Missing,
            ..
        })
    ));
    let b = End::new(&fabric, 1, 4, 16);
    let attr = QpInitAttr {
        send_cq: &b.cq,
        mode: Mode::Mp,
        ..attr
    };
    assert!(matches!(
        a.pd.create_qp(&attr),
        Err(Error::OtherDevice { .. })
    ));
}

#[test]
fn all_queue_pairs_of_the_card_can_be_used_and_no_more() {
    let fabric = Fabric::new(1, Traits::default());
    let a = End::new(&fabric, 0, 4, 16);
    let attr = QpInitAttr {
        send_cq: &a.cq,
        recv_cq: &a.cq,
        max_send_wr: 2,
        max_recv_wr: 2,
        mode: Mode::Mp,
        path_mtu: mtu(),
    };
    let mut qps: Vec<Qp> = (0..1021).map(|_| a.pd.create_qp(&attr).unwrap()).collect();
    assert!(matches!(
        a.pd.create_qp(&attr),
        Err(Error::Exhausted {
            what: "queue pair",
            limit: 1022
        })
    ));
    assert_eq!(a.context.queue_pairs().len(), 1022);
    qps.pop();
    a.pd.create_qp(&attr).unwrap();
}

#[test]
fn a_silent_peer_ends_the_request_and_no_peer_hears_of_it() {
    let (a, b, _) = End::pair(4, 16);
    let request = a.write_wr(1, 0, &b, 0, 1);
    drop(b.qp);
    a.qp.post_send(&[request]).unwrap();
    assert_eq!(a.completions(1)[0].status, WcStatus::RetryExceeded);
}

#[test]
fn any_drop_order_leaves_the_card_empty() {
    type Order = fn(End);
    let orders: [Order; 3] = [
        |End {
             context,
             pd,
             cq,
             qp,
             mr,
         }| {
            drop(context);
            drop(pd);
            drop(cq);
            drop(mr);
            drop(qp);
        },
        |End {
             context,
             pd,
             cq,
             qp,
             mr,
         }| {
            drop(qp);
            drop(cq);
            drop(mr);
            drop(pd);
            drop(context);
        },
        |End {
             context,
             pd,
             cq,
             qp,
             mr,
         }| {
            drop(mr);
            drop(pd);
            drop(qp);
            drop(context);
            drop(cq);
        },
    ];
    for order in orders {
        let fabric = Fabric::new(1, Traits::default());
        let end = End::new(&fabric, 0, 4, 16);
        assert!(fabric.lock().unwrap().cards[0].objects() == 4);
        order(end);
        let fabric = fabric.lock().unwrap();
        assert_eq!(
            (fabric.cards[0].objects(), fabric.cards[0].mappings()),
            (0, 0)
        );
    }
}

#[test]
fn counters_and_the_clock_are_read_whole() {
    let (a, b, fabric) = End::pair(4, 16);
    let before = a.context.control().cycles().unwrap();
    a.qp.post_send(&[a.write_wr(1, 0, &b, 0, 1 << 20)]).unwrap();
    a.completions(1);
    let control = a.context.control();
    let seconds = control.seconds(control.cycles().unwrap() - before);
    assert!(
        seconds > 80e-6 && seconds < 200e-6,
        "1 MiB took {seconds} s"
    );
    let counters = a.context.counters().unwrap();
    assert_eq!(counters.len(), Counter::ALL.len());
    for (counter, value) in counters {
        assert_eq!(
            value,
            fabric.lock().unwrap().cards[0].counter(counter),
            "{counter:?}"
        );
    }
    assert_eq!(control.counter(Counter::TxDataPackets).unwrap(), 1024);
    assert_eq!(a.qp.query().unwrap().cwnd, 16.5);
    assert_eq!(control.mac().unwrap(), mac(0));
    assert_eq!(a.context.capabilities().build_id, 0x0123_4567_89ab_cdef);
}

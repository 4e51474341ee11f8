//! Fake cards behind real vfio-user sockets, and the backend against them.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use mprdma_host::backend;
use mprdma_host::device::{Device, DeviceError};
use mprdma_host::memory::{Memory, PageSize};
use mprdma_host::verbs::{Context, ContextAttr};
use mprdma_host::Error;
use mprdma_spec::{config, csr};
use vfio_bindings::bindings::vfio::{
    vfio_region_info, VFIO_IRQ_INFO_EVENTFD, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_PCI_MSIX_IRQ_INDEX,
    VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, IrqInfo, Server, ServerBackend, ServerRegion};

use crate::fake_card::{Fabric, Shared, Traits, BAR0_BYTES};

const LIMIT: Duration = Duration::from_secs(10);

/// A directory of its own for sockets, removed at the end.
pub struct Directory(PathBuf);

impl Directory {
    pub fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!(
            "mprdma-test-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The clients' eventfds by card and vector.
type Wires = Arc<Mutex<HashMap<(usize, usize), File>>>;

/// Signals what the cards of `fabric` have raised, but for vectors that no client has wired.
fn signal(fabric: &mut Fabric, wires: &Wires) {
    let wires = wires.lock().unwrap();
    for (number, card) in fabric.cards.iter_mut().enumerate() {
        card.raised.retain(|vector| {
            let Some(mut event) = wires.get(&(number, *vector)) else {
                return true;
            };
            // A client that is gone does not mind.
            let _ = event.write_all(&1u64.to_ne_bytes());
            false
        });
    }
}

/// Cards at `nic0.sock`, `nic1.sock`, ... of a directory, with their port descriptions.
pub struct Rack {
    pub directory: Directory,
    pub fabric: Shared,
}

impl Rack {
    pub fn new(cards: usize, traits: Traits) -> Self {
        let rack = Self {
            directory: Directory::new(),
            fabric: Fabric::new(cards, traits),
        };
        let wires = Wires::default();
        for card in 0..cards {
            let number = card + 1;
            let text = format!(
                r#"{{"card": {card}, "mac": "02:00:00:00:00:{number:02x}", "ipv4": "10.0.0.{number}", "ipv6": "fd00::{number}", "link_gbps": 100.0}}"#
            );
            fs::write(rack.directory.path(&format!("nic{card}.json")), text).unwrap();
            serve(&rack.socket(card), &rack.fabric, &wires, card);
        }
        let fabric = Arc::clone(&rack.fabric);
        thread::spawn(move || loop {
            let busy = {
                let mut fabric = fabric.lock().unwrap();
                let busy = fabric.step();
                signal(&mut fabric, &wires);
                busy
            };
            if !busy {
                thread::sleep(Duration::from_micros(100));
            }
        });
        rack
    }

    pub fn socket(&self, card: usize) -> PathBuf {
        self.directory.path(&format!("nic{card}.sock"))
    }

    pub fn address(&self, card: usize) -> String {
        format!("vfio-user:{}", self.socket(card).display())
    }

    pub fn open(&self, card: usize) -> Result<Arc<dyn Device>, DeviceError> {
        backend::open(&self.address(card).parse().unwrap(), LIMIT)
    }

    /// Waits until card `card` has been reset because its user left.
    pub fn wait_reset(&self, card: usize, resets: usize) {
        let start = Instant::now();
        while self.fabric.lock().unwrap().cards[card].resets < resets {
            assert!(start.elapsed() < LIMIT, "the card was not reset");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

struct Backend {
    fabric: Shared,
    wires: Wires,
    card: usize,
}

impl ServerBackend for Backend {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        if region == 0 {
            let value = self.fabric.lock().unwrap().cards[self.card].read(offset as u32);
            data.copy_from_slice(&value.to_le_bytes()[..data.len()]);
        } else {
            let ids = u32::from(config::PCI_VENDOR) | u32::from(config::PCI_DEVICE) << 16;
            data.copy_from_slice(&ids.to_le_bytes()[..data.len()]);
        }
        Ok(())
    }

    fn region_write(&mut self, _region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        let value = u32::from_le_bytes(data.try_into().map_err(|_| io::ErrorKind::InvalidInput)?);
        self.fabric.lock().unwrap().cards[self.card].write(offset as u32, value);
        Ok(())
    }

    fn dma_map(
        &mut self,
        _: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        fd: Option<File>,
    ) -> io::Result<()> {
        let memory =
            Memory::from_file(fd.ok_or(io::ErrorKind::InvalidInput)?).map_err(io::Error::other)?;
        self.fabric.lock().unwrap().cards[self.card].map(
            address,
            size,
            offset as usize,
            Arc::new(memory),
        );
        Ok(())
    }

    fn dma_unmap(&mut self, _: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        self.fabric.lock().unwrap().cards[self.card].unmap(address, size);
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        self.fabric.lock().unwrap().cards[self.card].reset();
        Ok(())
    }

    fn set_irqs(
        &mut self,
        index: u32,
        flags: u32,
        start: u32,
        _count: u32,
        fds: Vec<File>,
    ) -> io::Result<()> {
        assert!(index == VFIO_PCI_MSIX_IRQ_INDEX && flags & VFIO_IRQ_SET_DATA_EVENTFD != 0);
        if let Some(event) = fds.into_iter().next() {
            let wire = (self.card, start as usize);
            self.wires.lock().unwrap().insert(wire, event);
        }
        Ok(())
    }
}

fn serve(path: &Path, fabric: &Shared, wires: &Wires, card: usize) {
    let irqs = (0..5)
        .map(|index| {
            let count = if index == VFIO_PCI_MSIX_IRQ_INDEX {
                config::MSIX_VECTORS as u32
            } else {
                0
            };
            IrqInfo {
                index,
                flags: VFIO_IRQ_INFO_EVENTFD,
                count,
            }
        })
        .collect();
    let regions = (0..9)
        .map(|index| ServerRegion {
            region_info: vfio_region_info {
                argsz: size_of::<vfio_region_info>() as u32,
                flags: VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE,
                index,
                size: match index {
                    0 => BAR0_BYTES,
                    7 => 4096,
                    _ => 0,
                },
                ..Default::default()
            },
            sparse_areas: Vec::new(),
            mmap_fd: None,
        })
        .collect();
    let server = Server::new(path, true, irqs, regions).unwrap();
    let mut backend = Backend {
        fabric: Arc::clone(fabric),
        wires: Arc::clone(wires),
        card,
    };
    thread::spawn(move || loop {
        let _ = server.run(&mut backend);
        let mut fabric = backend.fabric.lock().unwrap();
        let card = &mut fabric.cards[backend.card];
        card.unmap_all();
        card.reset();
    });
}

#[test]
fn a_card_behind_a_socket_is_a_device() {
    let rack = Rack::new(1, Traits::default());
    let device = rack.open(0).unwrap();
    let identity = device.identity();
    assert_eq!(
        (identity.vendor, identity.device),
        (config::PCI_VENDOR, config::PCI_DEVICE)
    );
    assert_eq!(
        (identity.bar0_bytes, identity.vectors),
        (BAR0_BYTES, config::MSIX_VECTORS)
    );
    assert_eq!(device.read32(csr::MAGIC).unwrap(), csr::MAGIC_VALUE);
    device.write32(csr::MAC_LO, 0x1234_5678).unwrap();
    assert_eq!(device.read32(csr::MAC_LO).unwrap(), 0x1234_5678);
    assert!(matches!(
        device.read32(2),
        Err(DeviceError::OutOfBar { offset: 2, .. })
    ));
    assert!(matches!(
        device.write32(BAR0_BYTES as u32, 0),
        Err(DeviceError::OutOfBar { .. })
    ));
    assert!(matches!(
        device.wait_interrupt(8, LIMIT),
        Err(DeviceError::NoVector {
            vector: 8,
            vectors: 8
        })
    ));

    let memory = Arc::new(Memory::allocate(8192, PageSize::Small).unwrap());
    device.map_dma(&memory, 0x1_0000_0000).unwrap();
    assert_eq!(rack.fabric.lock().unwrap().cards[0].mappings(), 1);
    device.unmap_dma(0x1_0000_0000, 8192).unwrap();
    assert_eq!(rack.fabric.lock().unwrap().cards[0].mappings(), 0);

    assert!(!device.wait_interrupt(3, Duration::ZERO).unwrap());
    rack.fabric.lock().unwrap().cards[0].raised.push_back(3);
    assert!(device.wait_interrupt(3, LIMIT).unwrap());
    assert!(!device.wait_interrupt(3, Duration::from_millis(5)).unwrap());
    device.reset().unwrap();
    assert_eq!(device.read32(csr::MAC_LO).unwrap(), 0);
}

#[test]
fn the_card_is_reset_when_its_user_leaves_and_can_be_opened_again() {
    let rack = Rack::new(1, Traits::default());
    for round in 1..4 {
        let context = Context::open(rack.open(0).unwrap(), &ContextAttr::default()).unwrap();
        let cq = context.create_cq(16).unwrap();
        assert_eq!(rack.fabric.lock().unwrap().cards[0].objects(), 2);
        drop((context, cq));
        // Each user resets the card on opening; the server does when the user has left.
        rack.wait_reset(0, 2 * round);
        let fabric = rack.fabric.lock().unwrap();
        assert_eq!(
            (fabric.cards[0].objects(), fabric.cards[0].mappings()),
            (0, 0)
        );
    }
}

#[test]
fn addresses_where_nothing_answers() {
    let directory = Directory::new();
    let open = |path: &Path| {
        backend::open(
            &format!("vfio-user:{}", path.display()).parse().unwrap(),
            LIMIT,
        )
        .err()
        .unwrap()
    };
    assert!(matches!(
        open(&directory.path("none.sock")),
        DeviceError::NotFound { .. }
    ));
    let stale = directory.path("stale.sock");
    drop(UnixListener::bind(&stale).unwrap());
    assert!(matches!(open(&stale), DeviceError::Stale { .. }));
    fs::write(directory.path("file"), "").unwrap();
    assert!(matches!(
        open(&directory.path("file")),
        DeviceError::Stale { .. }
    ));
    let error = backend::open(&"ffff:ff:1f.7".parse().unwrap(), LIMIT)
        .err()
        .unwrap();
    assert!(matches!(error, DeviceError::NotFound { .. }));
}

/// A server that says `answers[i]` to the i-th message, then nothing, then goes away when `hold` is over.
fn scripted(path: &Path, answers: Vec<Vec<u8>>, hold: Duration) {
    let listener = UnixListener::bind(path).unwrap();
    thread::spawn(move || {
        let (mut stream, _): (UnixStream, _) = listener.accept().unwrap();
        for answer in answers {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(&answer);
        }
        thread::sleep(hold);
    });
}

fn answer(id: u16, command: u16, flags: u32, errno: u32, body: &[u8]) -> Vec<u8> {
    let size = 16 + body.len() as u32;
    let words = [size, flags, errno].map(u32::to_ne_bytes).concat();
    [&id.to_ne_bytes()[..], &command.to_ne_bytes(), &words, body].concat()
}

#[test]
fn servers_that_misbehave_give_errors_and_never_a_hang() {
    let version = |major: u16| [&major.to_ne_bytes()[..], &1u16.to_ne_bytes(), b"{}\0"].concat();
    let good = answer(0, 1, 1, 0, &version(0));
    let cases: [(&str, Vec<Vec<u8>>, u64); 9] = [
        ("in use by another client", vec![], 1000),
        ("in use by another client", vec![], 0),
        (
            "speaks vfio-user 1.1",
            vec![answer(0, 1, 1, 0, &version(1))],
            0,
        ),
        ("an answer with a bad header", vec![vec![0xff; 32]], 0),
        (
            "bad version data",
            vec![answer(0, 1, 1, 0, b"\0\0\0\0{\"capabilities\":1}\0")],
            0,
        ),
        ("too short", vec![answer(0, 1, 1, 0, b"")], 0),
        ("not asked", vec![answer(7, 1, 1, 0, &version(0))], 0),
        (
            "device information was refused: Operation not permitted",
            vec![good.clone(), answer(1, 4, 0x21, 1, b"")],
            0,
        ),
        ("has gone away", vec![good], 0),
    ];
    let directory = Directory::new();
    for (i, (text, answers, hold)) in cases.into_iter().enumerate() {
        let path = directory.path(&format!("{i}.sock"));
        scripted(&path, answers, Duration::from_millis(hold));
        let address = format!("vfio-user:{}", path.display()).parse().unwrap();
        let error = backend::open(&address, Duration::from_millis(300))
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains(text), "case {i}: {error}");
    }
}

#[test]
fn a_server_that_ends_is_noticed_by_whoever_polls() {
    let body = |words: &[u32]| {
        words
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect::<Vec<u8>>()
    };
    let version = [&body(&[1 << 16])[..], b"{}\0"].concat();
    let answers = vec![
        answer(0, 1, 1, 0, &version),
        answer(1, 4, 1, 0, &body(&[16, 0b10, 9, 5])),
        answer(2, 5, 1, 0, &body(&[32, 3, 0, 0, 1 << 22, 0, 0, 0])),
        answer(3, 9, 1, 0, &body(&[0, 0, 7, 4, 0x4d52_1d1d])),
        answer(4, 7, 1, 0, &body(&[16, 1, 2, 0])),
        answer(5, 9, 1, 0, &body(&[0, 0, 0, 4, 0x1234])),
    ];
    let directory = Directory::new();
    let path = directory.path("ends.sock");
    scripted(&path, answers, Duration::ZERO);
    let address = format!("vfio-user:{}", path.display()).parse().unwrap();
    let device = backend::open(&address, LIMIT).unwrap();
    assert_eq!(device.identity().bar0_bytes, 1 << 22);
    assert_eq!(device.read32(0).unwrap(), 0x1234);
    let end = (0..1000).find_map(|_| device.relax().err()).unwrap();
    assert!(matches!(end, DeviceError::Gone { .. }), "{end}");
    assert!(matches!(device.read32(0), Err(DeviceError::Gone { .. })));
    assert!(matches!(
        device.write32(0, 0),
        Err(DeviceError::Gone { .. })
    ));
    let memory = Arc::new(Memory::allocate(1, PageSize::Small).unwrap());
    assert!(matches!(
        device.map_dma(&memory, 0),
        Err(DeviceError::Gone { .. })
    ));
}

#[test]
fn cards_that_do_not_fit_are_named() {
    let open = |traits: Traits| {
        let rack = Rack::new(1, traits);
        Context::open(rack.open(0).unwrap(), &ContextAttr::default()).unwrap_err()
    };
    let error = open(Traits {
        magic: 0xffff_ffff,
        ..Traits::default()
    });
    assert!(
        matches!(
            error,
            Error::NotOurs {
                magic: 0xffff_ffff,
                ..
            }
        ),
        "{error}"
    );
    let error = open(Traits {
        version: 0x0002_0003,
        ..Traits::default()
    })
    .to_string();
    assert!(
        error.contains("the card speaks version 2.3, the driver 1.2: update the driver"),
        "{error}"
    );
}

use super::device::Device;
use super::*;
use crate::card::fake::{self, FakeNic};
use crate::pcie::Wake;
use crate::scenario::LinkRule;
use mprdma_host::backend::vfio_user::VfioUser;
use mprdma_host::device::{Device as _, DeviceError};
use mprdma_host::memory::{Memory, PageSize};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::Sender;
use std::sync::Arc;
use std::time::Duration;
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_IRQ_SET_DATA_NONE,
    VFIO_PCI_MSIX_IRQ_INDEX,
};
use vfio_user::Client;

const BAR0: u64 = 4 << 20;
const IOVA: u64 = 0x1_0000_0000;

/// A running world of fake cards behind real sockets.
struct Lab {
    dir: PathBuf,
    commands: Sender<Command>,
    wake: Wake,
    runner: Option<std::thread::JoinHandle<WorldStats>>,
}

impl Lab {
    fn new(name: &str) -> Lab {
        let dir = std::env::temp_dir().join(format!("mprdma-sim-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/small.toml");
        let scenario = Scenario::load(&file).unwrap();
        let cores = FakeNic::pair();
        let mut world = World::new(&scenario, &Options::default(), cores).unwrap();
        for card in 0..2 {
            let device = Device::new("nic", world.host(card).clone(), BAR0);
            serve(&dir.join(format!("nic{card}.sock")), device).unwrap();
        }
        let (commands, inbox) = channel();
        let wake = world.wake();
        let link = Link {
            commands: commands.clone(),
            wake: wake.clone(),
            stop: Box::new(|| ()),
        };
        control::serve(&dir, link).unwrap();
        let runner = std::thread::spawn(move || {
            free_run(&mut world, &inbox);
            world.stats()
        });
        Lab {
            dir,
            commands,
            wake,
            runner: Some(runner),
        }
    }

    fn client(&self, card: usize) -> Client {
        Client::new(&self.dir.join(format!("nic{card}.sock"))).unwrap()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.commands.send(Command::Stop).unwrap();
        self.wake.ring();
        self.runner.take().unwrap().join().unwrap();
        std::fs::remove_dir_all(&self.dir).unwrap();
    }
}

fn read(client: &mut Client, offset: u32) -> u32 {
    let mut bytes = [0; 4];
    client
        .region_read(0, u64::from(offset), &mut bytes)
        .unwrap();
    u32::from_le_bytes(bytes)
}

fn write(client: &mut Client, offset: u32, value: u32) {
    client
        .region_write(0, u64::from(offset), &value.to_le_bytes())
        .unwrap();
}

fn write_address(client: &mut Client, offset: u32, value: u64) {
    client
        .region_write(0, u64::from(offset), &value.to_le_bytes())
        .unwrap();
}

fn memory(client: &mut Client, iova: u64, len: u64) -> File {
    // SAFETY: the name is a C string; the descriptor is new and ours.
    let file = unsafe {
        File::from(OwnedFd::from_raw_fd(libc::memfd_create(
            c"test".as_ptr(),
            0,
        )))
    };
    file.set_len(len).unwrap();
    client.dma_map(0, iova, len, file.as_raw_fd()).unwrap();
    file
}

fn eventfd() -> File {
    // SAFETY: the descriptor is new and ours.
    unsafe { File::from(OwnedFd::from_raw_fd(libc::eventfd(0, 0))) }
}

const EVENTFD: u32 = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;

#[test]
fn a_frame_goes_between_two_clients_and_raises_an_interrupt() {
    let lab = Lab::new("frame");
    let (mut a, mut b) = (lab.client(0), lab.client(1));
    assert_eq!(
        (read(&mut a, fake::MAGIC), read(&mut b, fake::MAGIC)),
        (fake::MAGIC_VALUE, fake::MAGIC_VALUE)
    );
    let (from, to) = (memory(&mut a, IOVA, 8192), memory(&mut b, IOVA, 8192));
    let frame: Vec<u8> = (0..2000).map(|i| (i * 7) as u8).collect();
    from.write_all_at(&frame, 5).unwrap();
    let mut event = eventfd();
    b.set_irqs(VFIO_PCI_MSIX_IRQ_INDEX, EVENTFD, 0, 1, &[event.as_raw_fd()])
        .unwrap();
    write_address(&mut b, fake::TARGET, IOVA + 64);
    write_address(&mut a, fake::SOURCE, IOVA + 5);
    write(&mut a, fake::LENGTH, 2000);
    write(&mut a, fake::GO, 1);
    let mut count = [0; 8];
    event.read_exact(&mut count).unwrap();
    let mut got = vec![0; 2000];
    to.read_exact_at(&mut got, 64).unwrap();
    assert!(got == frame);
    assert_eq!(u64::from_ne_bytes(count), 1);
}

#[test]
fn a_killed_client_leaves_the_card_as_new_for_the_next() {
    let lab = Lab::new("killed");
    let mut first = lab.client(0);
    let _memory = memory(&mut first, IOVA, 4096);
    write(&mut first, fake::LENGTH, 99);
    first.region_write(7, 4, &[6, 0]).unwrap();
    assert_eq!(read(&mut first, fake::LENGTH), 99);
    drop(first);
    let mut second = loop {
        if let Ok(client) = Client::new(&lab.dir.join("nic0.sock")) {
            break client;
        }
    };
    assert_eq!(read(&mut second, fake::LENGTH), 0);
    let mut command = [9; 2];
    second.region_read(7, 4, &mut command).unwrap();
    assert_eq!(command, [0, 0]);
    let mut status = [0; 2];
    second.region_read(7, 6, &mut status).unwrap();
    assert_eq!(status, [0x10, 0]);
    write_address(&mut second, fake::SOURCE, IOVA);
    write(&mut second, fake::LENGTH, 64);
    write(&mut second, fake::GO, 1);
    while read(&mut second, fake::READ_ERRORS) == 0 {}
    second.region_read(7, 6, &mut status).unwrap();
    assert_eq!(status, [0x10, 0x20], "received master abort");
    second.region_write(7, 6, &[0, 0x20]).unwrap();
    second.region_read(7, 6, &mut status).unwrap();
    assert_eq!(status, [0x10, 0]);
    let stats = ask(&lab.dir, &Request::Stats).unwrap().stats.unwrap();
    assert_eq!(
        stats["cards"][0]["faults"], 1,
        "the mappings of the first client are gone"
    );
}

#[test]
fn a_client_that_shortens_its_memory_under_dma_gets_errors_and_the_card_lives_on() {
    let lab = Lab::new("shortened");
    let mut client = lab.client(0);
    let file = memory(&mut client, IOVA, 8192);
    write_address(&mut client, fake::SOURCE, IOVA + 4096);
    write(&mut client, fake::LENGTH, 64);
    file.set_len(4096).unwrap();
    write(&mut client, fake::GO, 1);
    while read(&mut client, fake::READ_ERRORS) == 0 {}
    let stats = ask(&lab.dir, &Request::Stats).unwrap().stats.unwrap();
    assert_eq!(stats["cards"][0]["faults"], 1);
    let faults = stats["cards"][0]["last_faults"].to_string();
    assert!(faults.contains("has become shorter"), "{faults}");

    let mut other = lab.client(1);
    assert_eq!(read(&mut other, fake::MAGIC), fake::MAGIC_VALUE);
    drop(client);
    let mut next = loop {
        if let Ok(client) = Client::new(&lab.dir.join("nic0.sock")) {
            break client;
        }
    };
    // To an address that the network does not know, so it goes to every other card.
    let sent = memory(&mut next, IOVA, 8192);
    sent.write_all_at(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0], 4096)
        .unwrap();
    write_address(&mut next, fake::SOURCE, IOVA + 4096);
    let _received = memory(&mut other, IOVA, 8192);
    write_address(&mut other, fake::TARGET, IOVA + 64);
    write(&mut next, fake::LENGTH, 64);
    write(&mut next, fake::GO, 1);
    while read(&mut other, fake::RECEIVED) == 0 {}
    assert_eq!(read(&mut next, fake::READ_ERRORS), 0);
}

#[test]
fn config_space_bars_and_interrupts_look_like_a_pci_function() {
    let lab = Lab::new("config");
    let mut client = lab.client(0);
    let mut whole = [0; 4096];
    client.region_read(7, 0, &mut whole).unwrap();
    assert_eq!(whole[..4], [0x1d, 0x1d, 0x52, 0x4d]);
    let sizes: Vec<u64> = (0..9).map(|i| client.region(i).unwrap().size).collect();
    assert_eq!(sizes, [BAR0, 0, 0, 0, 0x2000, 0, 0, 4096, 0]);
    let counts: Vec<u32> = (0..5)
        .map(|i| client.get_irq_info(i).unwrap().count)
        .collect();
    assert_eq!(counts, [0, 0, 8, 0, 0]);
    let mut msix = [1; 16];
    client.region_read(4, 0x1000, &mut msix).unwrap();
    assert_eq!(msix, [0; 16]);
}

#[test]
fn set_irqs_may_come_without_descriptors_and_again_and_again() {
    let lab = Lab::new("irqs");
    let mut client = lab.client(0);
    let mut events = [eventfd(), eventfd()];
    client
        .set_irqs(VFIO_PCI_MSIX_IRQ_INDEX, EVENTFD, 0, 1, &[])
        .unwrap();
    for _ in 0..3 {
        for vector in 0..2 {
            let fd = events[vector as usize].as_raw_fd();
            client
                .set_irqs(VFIO_PCI_MSIX_IRQ_INDEX, EVENTFD, vector, 1, &[fd])
                .unwrap();
        }
    }
    let trigger = VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_TRIGGER;
    client
        .set_irqs(VFIO_PCI_MSIX_IRQ_INDEX, trigger, 1, 1, &[])
        .unwrap();
    let mut count = [0; 8];
    events[1].read_exact(&mut count).unwrap();
    assert_eq!(u64::from_ne_bytes(count), 1);
    client
        .set_irqs(VFIO_PCI_MSIX_IRQ_INDEX, trigger, 0, 0, &[])
        .unwrap();
    client
        .set_irqs(VFIO_PCI_MSIX_IRQ_INDEX, trigger, 7, 9, &[])
        .unwrap();
    assert_eq!(read(&mut client, fake::MAGIC), fake::MAGIC_VALUE);
}

#[test]
fn accesses_of_any_size_and_outside_the_bar_are_answered() {
    let lab = Lab::new("sizes");
    let mut client = lab.client(0);
    write_address(&mut client, fake::SOURCE, 0x1122_3344_5566_7788);
    let mut three = [0; 3];
    client
        .region_read(0, u64::from(fake::SOURCE) + 2, &mut three)
        .unwrap();
    assert_eq!(three, [0x66, 0x55, 0x44]);
    client
        .region_write(0, u64::from(fake::SOURCE) + 1, &[1])
        .unwrap();
    assert_eq!(
        read(&mut client, fake::SOURCE),
        0x5566_7788,
        "part of a register is not written"
    );
    let mut outside = [0; 8];
    client.region_read(0, BAR0 - 4, &mut outside).unwrap();
    client.region_write(0, u64::MAX, &[1; 4]).unwrap();
    client.region_read(5, 0, &mut [0; 4]).unwrap();
    assert_eq!(outside, [0xff; 8]);
}

#[test]
fn device_reset_and_function_level_reset_clear_the_card() {
    let lab = Lab::new("reset");
    let mut client = lab.client(0);
    for flr in [false, true] {
        write(&mut client, fake::LENGTH, 99);
        assert_eq!(read(&mut client, fake::LENGTH), 99);
        match flr {
            true => client.region_write(7, 0x48, &[0x10, 0xa8]).unwrap(),
            false => client.reset().unwrap(),
        }
        assert_eq!(read(&mut client, fake::LENGTH), 0);
    }
}

#[test]
fn dma_maps_of_every_kind_are_accepted_and_one_unmap_covers_many() {
    let lab = Lab::new("maps");
    let mut client = lab.client(0);
    let file = memory(&mut client, IOVA, 16 * 4096);
    client.dma_unmap(IOVA, 16 * 4096).unwrap();
    for page in 0..16 {
        client
            .dma_map(
                (15 - page) * 4096,
                IOVA + page * 4096,
                4096,
                file.as_raw_fd(),
            )
            .unwrap();
    }
    client.dma_unmap(0x4000, 0x8000_0000_0000 - 0x4000).unwrap();
    let stats = |lab: &Lab| {
        ask(&lab.dir, &Request::Stats).unwrap().stats.unwrap()["cards"][0]["dma_ranges"].clone()
    };
    assert_eq!(stats(&lab), 0);
    client.dma_map(0, IOVA, 4096, file.as_raw_fd()).unwrap();
    assert_eq!(stats(&lab), 1);
}

#[test]
fn the_control_socket_reports_and_changes_links() {
    let lab = Lab::new("control");
    let link = |to: &str, loss: f64| {
        let rule = LinkRule {
            from: "leaf0".into(),
            to: to.into(),
            loss: Some(loss),
            ..LinkRule::default()
        };
        ask(
            &lab.dir,
            &Request::Link {
                rule: Box::new(rule),
                down: Some(true),
            },
        )
    };
    assert_eq!(link("spine*", 0.5).unwrap().links, Some(2));
    assert!(link("spine7", 0.5)
        .unwrap_err()
        .to_string()
        .contains("no link leaf0 to spine7"));
    assert!(link("spine0", 1.5)
        .unwrap_err()
        .to_string()
        .contains("loss = 1.5"));
    let absent = ask(Path::new("/nonexistent"), &Request::Stats)
        .unwrap_err()
        .to_string();
    assert!(absent.contains("mprdma-sim up"), "{absent}");
}

#[test]
fn a_second_client_is_turned_away_while_the_first_has_the_card() {
    let lab = Lab::new("second");
    let mut first = lab.client(0);
    write(&mut first, fake::LENGTH, 5);
    assert!(Client::new(&lab.dir.join("nic0.sock")).is_err());
    assert!(Client::new(&lab.dir.join("nic0.sock")).is_err());
    assert_eq!(read(&mut first, fake::LENGTH), 5);
    drop(first);
    // Until the server has noticed the end of the first client, it turns others away.
    let mut third = loop {
        if let Ok(client) = Client::new(&lab.dir.join("nic0.sock")) {
            break client;
        }
    };
    assert_eq!(read(&mut third, fake::LENGTH), 0);
}

#[test]
fn our_own_driver_finds_the_card_and_is_told_when_it_is_in_use() {
    let lab = Lab::new("driver");
    let socket = lab.dir.join("nic0.sock");
    let patience = Duration::from_secs(60);
    let driver = VfioUser::open(&socket, patience).unwrap();
    let identity = driver.identity();
    assert_eq!((identity.bar0_bytes, identity.vectors), (BAR0, 8));
    driver.write32(fake::LENGTH, 700).unwrap();
    assert_eq!(driver.read32(fake::LENGTH).unwrap(), 700);
    let frame = Arc::new(Memory::allocate(8192, PageSize::Small).unwrap());
    frame
        .write(0, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12])
        .unwrap();
    driver.map_dma(&frame, IOVA).unwrap();
    assert!(driver.map_dma(&frame, IOVA + 4096).is_err(), "it overlaps");
    let error = VfioUser::open(&socket, patience).err().unwrap();
    assert!(matches!(error, DeviceError::Busy { .. }), "{error}");

    let mut peer = lab.client(1);
    let received = memory(&mut peer, IOVA, 8192);
    write_address(&mut peer, fake::TARGET, IOVA + 64);
    driver.write32(fake::SOURCE, IOVA as u32).unwrap();
    driver
        .write32(fake::SOURCE + 4, (IOVA >> 32) as u32)
        .unwrap();
    driver.write32(fake::GO, 1).unwrap();
    while read(&mut peer, fake::RECEIVED) == 0 {}
    driver.unmap_dma(IOVA, 8192).unwrap();
    driver.reset().unwrap();
    assert_eq!(driver.read32(fake::LENGTH).unwrap(), 0);
    let mut got = [0; 12];
    while got[0] == 0 {
        received.read_exact_at(&mut got, 64).unwrap();
    }
    assert_eq!(got, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
}

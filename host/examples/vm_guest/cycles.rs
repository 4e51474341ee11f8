//! Rounds of use, kill, reset, unbind and bind, and a look at what they leave behind.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context as _, Result};
use mprdma_host::port::Port;

use crate::job::{Job, Phase};
use crate::leaks::{nobody_is_left, Snapshot};
use crate::LIMIT;

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Victim {
    Hold,
    /// The holder, while another process has it make a queue pair.
    HoldWithQp,
    Sender,
    Receiver,
    BenchClient,
    BenchServer,
}

/// Whom to kill, and when. The first rounds cover every phase.
const ROUNDS: [(Victim, Phase); 12] = [
    (Victim::Hold, Phase::Open),
    (Victim::BenchClient, Phase::SetUp),
    (Victim::Receiver, Phase::Connection),
    (Victim::Sender, Phase::Transfer),
    (Victim::BenchServer, Phase::TearDown),
    (Victim::HoldWithQp, Phase::SetUp),
    (Victim::BenchServer, Phase::Transfer),
    (Victim::Sender, Phase::Open),
    (Victim::BenchClient, Phase::Connection),
    (Victim::Hold, Phase::TearDown),
    (Victim::Receiver, Phase::Transfer),
    (Victim::BenchClient, Phase::TearDown),
];

/// The choice of driver that an operator has made before; no such driver exists.
const CHOICE: &str = "spare";
/// Bytes of the file that is sent: more than is sent before the kill.
const FILE_BYTES: usize = 4 << 20;
const SENT: &str = "/tmp/sent.cycles";
const RECEIVED: &str = "/tmp/received.cycles";

/// Kills `count` times.
pub fn run(cards: &[String], count: usize) -> Result<()> {
    let mut random = Random::new()?;
    println!("seed {}", random.0);
    fs::write(SENT, vec![0x5a; FILE_BYTES])?;
    let cards: Vec<Card> = cards.iter().enumerate().map(Card::new).collect();
    for card in &cards {
        Job::run(&["unbind", &card.address])?;
        fs::write(card.file("driver_override"), CHOICE)?;
        Job::run(&["bind", &card.address])?;
    }
    let mut hits = BTreeMap::<(Victim, Phase), usize>::new();
    let mut halves = 0;
    // After some rounds everything that is kept for good is there.
    let (mut before, warm) = (None, (count / 4).min(ROUNDS.len()));
    for round in 0..count {
        if round == warm {
            before = Some(Snapshot::take()?);
        }
        if let Some(before) = before.as_ref().filter(|_| round % 10 == 0) {
            eprintln!("{}", Snapshot::take()?.compare(before)?);
        }
        let (victim, phase) = ROUNDS[round % ROUNDS.len()];
        let card = &cards[round % cards.len()];
        let start = Instant::now();
        let mut whole = || -> Result<()> {
            let hit = kill(&cards, victim, phase, &mut random)?;
            if let Some(hit) = hit {
                *hits.entry((victim, hit)).or_default() += 1;
            }
            let killed = start.elapsed();
            nobody_is_left()?;
            fs::write(card.file("reset"), "1")?;
            halves += rebind(card, round % 4 < 2, &mut random)?;
            eprintln!(
                "round {round}: {victim:?} in {hit:?} for {phase:?}, {killed:.1?} of {:.1?}",
                start.elapsed()
            );
            Ok(())
        };
        whole().with_context(|| format!("round {round}, {victim:?} in {phase:?}"))?;
    }
    for card in &cards {
        Job::run(&["info", "-d", &card.address])?;
    }
    let after = Snapshot::take()?;
    let known = |name: &str| {
        cards.iter().any(|card| {
            ["driver", "ctl"]
                .iter()
                .any(|kind| name == format!("{}.{kind}", card.address))
        })
    };
    for path in beginning_with("/run/mprdma/")? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        ensure!(known(&name), "{} is left", path.display());
    }
    for card in &cards {
        Job::run(&["unbind", &card.address])?;
        card.expect(None, Some(CHOICE))?;
        ensure!(!card.note().exists(), "{} stays", card.note().display());
        fs::write(card.file("driver_override"), "\n")?;
        Job::run(&["bind", &card.address])?;
    }
    fs::remove_file(SENT)?;
    println!("killed {hits:?}");
    println!("bind or unbind killed half-way {halves} times");
    let before = before.context("at least one round is needed")?;
    println!("{count} cycles: {}", after.compare(&before)?);
    if count >= Phase::ALL.len() {
        for phase in Phase::ALL {
            ensure!(
                hits.keys().any(|(_, hit)| *hit == phase),
                "none was killed in {phase:?}"
            );
        }
    }
    ensure!(
        halves > 0 || count < 50,
        "no bind or unbind was killed half-way"
    );
    Ok(())
}

/// Starts what `victim` needs, kills it in `phase`, and waits for the end of the others. Says in which phase it was.
fn kill(
    cards: &[Card],
    victim: Victim,
    phase: Phase,
    random: &mut Random,
) -> Result<Option<Phase>> {
    let _ = fs::remove_file(RECEIVED);
    let [a, b] = cards else {
        bail!("two cards are needed");
    };
    // What ends by itself soon is killed in its end, what goes on for long before.
    let ends = phase == Phase::TearDown;
    let iterations = if ends { "2" } else { "1000000" };
    let measure = ["bench", "write-bw", "-n", iterations];
    let mut client = a.arguments(match victim {
        Victim::Hold | Victim::HoldWithQp => &["hold"],
        Victim::Sender | Victim::Receiver => &["send-file"],
        _ => &measure,
    });
    let mut server = b.arguments(match victim {
        Victim::Sender | Victim::Receiver => &["recv-file", "--buffer", "4M"],
        _ => &["bench", "write-bw"],
    });
    match victim {
        Victim::Hold | Victim::HoldWithQp => {
            client = vec!["-v", "hold", "-d", &a.address];
            if ends {
                client.extend(["--seconds", "0"]);
            }
        }
        Victim::Sender | Victim::Receiver => {
            client.extend([SENT, "127.0.0.1"]);
            server.extend(["--bind", "127.0.0.1", RECEIVED]);
        }
        _ => {
            client.push("127.0.0.1");
            server.extend(["--bind", "127.0.0.1"]);
        }
    }
    // A client that is killed before it connects has no use for a server, which would wait for it.
    let alone = matches!(victim, Victim::Hold | Victim::HoldWithQp) || phase == Phase::Open;
    let server = (!alone).then(|| Job::start(&server)).transpose()?;
    let client = Job::start(&client)?;
    let other = if victim == Victim::HoldWithQp {
        client.until_it_says("is held")?;
        Some(Job::start(&["qp", "create", "-d", &a.address])?)
    } else {
        None
    };
    let (mut victim, others) = match (victim, server) {
        (Victim::Receiver | Victim::BenchServer, Some(server)) => (server, vec![client]),
        (_, server) => (client, server.into_iter().chain(other).collect()),
    };
    // One that cannot begin without the victim fails as soon as it is gone.
    victim.until_phase(phase)?;
    thread::sleep(random.below(phase.spread()));
    let killed = victim.kill()?;
    for mut other in others {
        other.end()?;
    }
    for part in beginning_with(RECEIVED)? {
        fs::remove_file(part)?;
    }
    Ok(killed)
}

/// Kills an `unbind` and a `bind` on the way; after each the other commands must work. Says how many were half done.
fn rebind(card: &Card, again: bool, random: &mut Random) -> Result<usize> {
    let mut halves = 0;
    let changed = || card.choice().as_deref() != Some("vfio-pci");
    halves += usize::from(cut(card, "unbind", &changed, random)?);
    if again {
        Job::run(&["unbind", &card.address])?;
        card.expect(None, Some(CHOICE))?;
    }
    let changed = || card.choice().as_deref() == Some("vfio-pci");
    halves += usize::from(cut(card, "bind", &changed, random)?);
    Job::run(&["bind", &card.address])?;
    card.expect(Some("vfio-pci"), Some("vfio-pci"))?;
    Ok(halves)
}

/// Starts `mprdma COMMAND`, and kills it soon after `changed`. Says whether it was neither before nor behind all of it.
fn cut(
    card: &Card,
    command: &str,
    changed: &dyn Fn() -> bool,
    random: &mut Random,
) -> Result<bool> {
    let mut job = Job::start(&[command, &card.address])?;
    let start = Instant::now();
    while !changed() && start.elapsed() < Duration::from_secs(5) {
        std::hint::spin_loop();
    }
    let (moment, length) = (Instant::now(), random.below(Duration::from_millis(3)));
    while moment.elapsed() < length {
        std::hint::spin_loop();
    }
    job.kill()?;
    let state = (card.driver(), card.choice(), card.note().exists());
    let ends = [
        (
            Some("vfio-pci".to_owned()),
            Some("vfio-pci".to_owned()),
            true,
        ),
        (None, Some(CHOICE.to_owned()), false),
    ];
    Ok(!ends.contains(&state))
}

/// Files whose paths begin so.
fn beginning_with(path: &str) -> Result<Vec<PathBuf>> {
    let (folder, name) = path.rsplit_once('/').context("a whole path is needed")?;
    let entries = fs::read_dir(folder).with_context(|| folder.to_owned())?;
    let begins = |path: &PathBuf| {
        let found = path.file_name().unwrap_or_default();
        found.to_string_lossy().starts_with(name)
    };
    Ok(entries
        .flatten()
        .map(|entry| entry.path())
        .filter(begins)
        .collect())
}

/// A card as sysfs shows it.
struct Card {
    address: String,
    mac: String,
    ip: String,
}

impl Card {
    fn new((number, address): (usize, &String)) -> Self {
        let port = Port::numbered(number as u8);
        Self {
            address: address.clone(),
            mac: port.mac.to_string(),
            ip: port.ipv4.map(|ip| ip.to_string()).unwrap_or_default(),
        }
    }

    /// `mprdma -v COMMAND` with this card.
    fn arguments<'a>(&'a self, command: &[&'a str]) -> Vec<&'a str> {
        let device = ["-d", &self.address, "--mac", &self.mac, "--ip", &self.ip];
        [&["-v"], command, &device].concat()
    }

    fn file(&self, name: &str) -> PathBuf {
        Path::new("/sys/bus/pci/devices")
            .join(&self.address)
            .join(name)
    }

    /// Where `mprdma bind` notes what was before.
    fn note(&self) -> PathBuf {
        Path::new("/run/mprdma").join(format!("{}.driver", self.address))
    }

    fn driver(&self) -> Option<String> {
        let target = fs::read_link(self.file("driver")).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }

    fn choice(&self) -> Option<String> {
        let text = fs::read_to_string(self.file("driver_override")).ok()?;
        Some(text.trim().to_owned()).filter(|text| text != "(null)")
    }

    /// Its driver and `driver_override` are these.
    fn expect(&self, driver: Option<&str>, choice: Option<&str>) -> Result<()> {
        let now = (self.driver(), self.choice());
        ensure!(
            (now.0.as_deref(), now.1.as_deref()) == (driver, choice),
            "{}: driver and choice are {now:?}, not {:?}",
            self.address,
            (driver, choice)
        );
        Ok(())
    }
}

/// A random number generator (xorshift64).
struct Random(u64);

impl Random {
    fn new() -> Result<Self> {
        let mut seed = [0; 8];
        let mut file = fs::File::open("/dev/urandom")?;
        std::io::Read::read_exact(&mut file, &mut seed)?;
        Ok(Self(u64::from_le_bytes(seed) | 1))
    }

    /// Any time below `end`.
    fn below(&mut self, end: Duration) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        end.mul_f64((self.0 >> 11) as f64 / (1u64 << 53) as f64)
            .min(LIMIT)
    }
}

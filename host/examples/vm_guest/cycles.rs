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

/// Kills `count` times, and compares what is there before and after.
pub fn run(cards: &[String], count: usize) -> Result<()> {
    let cards: Vec<Card> = cards.iter().enumerate().map(Card::new).collect();
    fs::write(SENT, vec![0x5a; FILE_BYTES])?;
    for card in &cards {
        card.choose(CHOICE)?;
    }
    let mut cycles = Cycles {
        random: Random::new()?,
        cards: &cards,
        hits: BTreeMap::new(),
        halves: 0,
    };
    println!("seed {}", cycles.random.0);
    // After some rounds everything that is kept for good is there.
    let warm = (count / 4).min(ROUNDS.len());
    let mut before = None;
    for round in 0..count {
        if round == warm {
            before = Some(Snapshot::take()?);
        }
        if let Some(before) = before.as_ref().filter(|_| round % 10 == 0) {
            eprintln!("{}", Snapshot::take()?.compare(before)?);
        }
        let (victim, phase) = ROUNDS[round % ROUNDS.len()];
        let done = cycles.round(round, victim, phase);
        done.with_context(|| format!("round {round}, {victim:?} in {phase:?}"))?;
    }
    for card in &cards {
        Job::run(&["info", "-d", &card.address])?;
    }
    let after = Snapshot::take()?;
    only_state_files_of(&cards)?;
    for card in &cards {
        Job::run(&["unbind", &card.address])?;
        card.expect(None, Some(CHOICE))?;
        ensure!(!card.note().exists(), "{} stays", card.note().display());
        card.choose("\n")?;
    }
    fs::remove_file(SENT)?;
    println!("killed {:?}", cycles.hits);
    println!("bind or unbind killed half-way {} times", cycles.halves);
    let before = before.context("at least one round is needed")?;
    println!("{count} cycles: {}", after.compare(&before)?);
    // A kill may come a phase late, and a command may be quicker than its kill.
    if count >= 2 * ROUNDS.len() {
        for phase in Phase::ALL {
            let hit = cycles.hits.keys().any(|(_, hit)| *hit == phase);
            ensure!(hit, "none was killed in {phase:?}");
        }
        ensure!(cycles.halves > 0, "no bind or unbind was killed half-way");
    }
    Ok(())
}

/// What the rounds share.
struct Cycles<'a> {
    random: Random,
    cards: &'a [Card],
    /// How often each was killed, by the phase in which it was.
    hits: BTreeMap<(Victim, Phase), usize>,
    /// How many commands that bind and unbind were killed half-way.
    halves: usize,
}

impl Cycles<'_> {
    /// Kills, resets and rebinds a card.
    fn round(&mut self, number: usize, victim: Victim, phase: Phase) -> Result<()> {
        let start = Instant::now();
        let hit = kill(self.cards, victim, phase, &mut self.random)?;
        // What `qp create` makes is changed, but never connected.
        let connects = victim != Victim::HoldWithQp;
        let hit = hit.map(|hit| if connects { hit } else { hit.min(Phase::SetUp) });
        if let Some(hit) = hit {
            *self.hits.entry((victim, hit)).or_default() += 1;
        }
        nobody_is_left()?;
        let killed = start.elapsed();
        let card = &self.cards[number % self.cards.len()];
        fs::write(card.file("reset"), "1")?;
        self.halves += rebind(card, number % 4 < 2, &mut self.random)?;
        let all = start.elapsed();
        eprintln!("round {number}: {victim:?} in {hit:?} for {phase:?}, {killed:.1?} of {all:.1?}");
        Ok(())
    }
}

/// Starts what `victim` needs, kills it in `phase`, and waits for the end of the others. Says in which phase it was.
fn kill(
    cards: &[Card],
    victim: Victim,
    phase: Phase,
    random: &mut Random,
) -> Result<Option<Phase>> {
    let [a, b] = cards else {
        bail!("two cards are needed");
    };
    let server = server(b, victim, phase).map(|arguments| Job::start(&arguments));
    let server = server.transpose()?;
    let client = Job::start(&client(a, victim, phase))?;
    let mut other = None;
    if victim == Victim::HoldWithQp {
        client.until_it_says("is held")?;
        other = Some(Job::start(&["qp", "create", "-d", &a.address])?);
    }
    let (mut victim, others) = match (victim, server) {
        (Victim::Receiver | Victim::BenchServer, Some(server)) => (server, vec![client]),
        (_, server) => (client, server.into_iter().chain(other).collect()),
    };
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

/// The arguments of who connects, or is alone. What is killed in its end ends soon, what is killed before goes on for long.
fn client(card: &Card, victim: Victim, phase: Phase) -> Vec<&str> {
    let ends = phase == Phase::TearDown;
    let address = &card.address;
    match victim {
        Victim::Hold if ends => vec!["-v", "hold", "-d", address, "--seconds", "0"],
        Victim::Hold | Victim::HoldWithQp => vec!["-v", "hold", "-d", address],
        Victim::Sender | Victim::Receiver => card.arguments(&["send-file"], &[SENT, "127.0.0.1"]),
        Victim::BenchClient | Victim::BenchServer => {
            let iterations = if ends { "2" } else { "1000000" };
            card.arguments(&["bench", "write-bw"], &["-n", iterations, "127.0.0.1"])
        }
    }
}

/// The arguments of who waits for it, if anybody does: for a client that is killed before it connects nobody should.
fn server(card: &Card, victim: Victim, phase: Phase) -> Option<Vec<&str>> {
    let here = ["--bind", "127.0.0.1"];
    match victim {
        _ if phase == Phase::Open => None,
        Victim::Hold | Victim::HoldWithQp => None,
        Victim::Sender | Victim::Receiver => {
            let command = ["recv-file", "--buffer", "4M"];
            Some(card.arguments(&command, &[here[0], here[1], RECEIVED]))
        }
        Victim::BenchClient | Victim::BenchServer => {
            Some(card.arguments(&["bench", "write-bw"], &here))
        }
    }
}

/// `mprdma` keeps no file of state but those of these cards.
fn only_state_files_of(cards: &[Card]) -> Result<()> {
    let known: Vec<String> = cards
        .iter()
        .flat_map(|card| ["driver", "ctl"].map(|kind| format!("{}.{kind}", card.address)))
        .collect();
    for path in beginning_with("/run/mprdma/")? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        ensure!(
            known.iter().any(|known| *known == name),
            "{} is left",
            path.display()
        );
    }
    Ok(())
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

    /// `mprdma -v COMMAND` with this card, and `more`.
    fn arguments<'a>(&'a self, command: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
        let device = ["-d", &self.address, "--mac", &self.mac, "--ip", &self.ip];
        [&["-v"], command, &device, more].concat()
    }

    /// Makes the choice of driver that `mprdma bind` finds, and binds it.
    fn choose(&self, driver: &str) -> Result<()> {
        Job::run(&["unbind", &self.address])?;
        fs::write(self.file("driver_override"), driver)?;
        Job::run(&["bind", &self.address])
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

//! Nodes and links of the network, by name and by index.

use crate::scenario::{Kind, Network};
use std::fmt;

/// One end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// A card's port.
    Card(usize),
    /// A leaf switch.
    Leaf(usize),
    /// A spine switch.
    Spine(usize),
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Node::Card(i) => write!(f, "card{i}"),
            Node::Leaf(i) => write!(f, "leaf{i}"),
            Node::Spine(i) => write!(f, "spine{i}"),
        }
    }
}

/// Every directed link of the network.
#[derive(Clone, Debug)]
pub struct Topology {
    /// Number of cards.
    pub cards: usize,
    /// Number of leaves; 0 when two cards are wired directly.
    pub leaves: usize,
    /// Number of spines.
    pub spines: usize,
    links: Vec<(Node, Node)>,
}

impl Topology {
    /// The links that the network description implies.
    pub fn new(network: &Network) -> Topology {
        let (cards, leaves, spines) = (network.cards, network.leaves, network.spines);
        let mut links = vec![];
        if network.kind == Kind::Direct {
            return Topology {
                cards,
                leaves: 0,
                spines: 0,
                links: vec![
                    (Node::Card(0), Node::Card(1)),
                    (Node::Card(1), Node::Card(0)),
                ],
            };
        }
        for card in 0..cards {
            links.push((Node::Card(card), Node::Leaf(card % leaves)));
            links.push((Node::Leaf(card % leaves), Node::Card(card)));
        }
        for leaf in 0..leaves {
            for spine in 0..spines {
                links.push((Node::Leaf(leaf), Node::Spine(spine)));
                links.push((Node::Spine(spine), Node::Leaf(leaf)));
            }
        }
        Topology {
            cards,
            leaves,
            spines,
            links,
        }
    }

    /// All links; a link's index is its place here.
    pub fn links(&self) -> &[(Node, Node)] {
        &self.links
    }

    /// The leaf that a card hangs off.
    pub fn leaf_of(&self, card: usize) -> usize {
        card % self.leaves.max(1)
    }

    /// Index of the link between two nodes.
    pub fn link(&self, from: Node, to: Node) -> Option<usize> {
        self.links.iter().position(|&l| l == (from, to))
    }

    /// Links whose ends match the two names or patterns (`leaf*`); with `both`, the opposite ones too.
    pub fn matching(&self, from: &str, to: &str, both: bool) -> Vec<usize> {
        let fits = |a: &Node, b: &Node| matches(from, *a) && matches(to, *b);
        let found = self
            .links
            .iter()
            .enumerate()
            .filter(|(_, (a, b))| fits(a, b) || (both && fits(b, a)));
        found.map(|(i, _)| i).collect()
    }

    /// The names in use, for messages.
    pub fn describe(&self) -> String {
        let range = |name: &str, n: usize| match n {
            0 => String::new(),
            1 => format!(", {name}0"),
            _ => format!(", {name}0..{name}{}", n - 1),
        };
        let all =
            range("card", self.cards) + &range("leaf", self.leaves) + &range("spine", self.spines);
        all.trim_start_matches(", ").to_string()
    }
}

fn matches(pattern: &str, node: Node) -> bool {
    let name = node.to_string();
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    }
}

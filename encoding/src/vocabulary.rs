//! The move vocabulary of all policies: 4,208 strings in ASCII order.
//!
//! All 4,032 `<from><to>` with different squares, and 176 promotions: from rank 7 to 8 and from rank 2 to 1,
//! straight or one file aside, with suffix b, n, q or r. Castling is the king's two-square move.

use std::sync::OnceLock;

use shakmaty::{Move, Rank, Role, Square, uci::UciMove};

/// Number of moves in the vocabulary.
pub const SIZE: usize = 4208;

/// SHA-256 of the 4,208 strings joined by `\n`, in hexadecimal.
pub const FINGERPRINT: &str = "00baf3467901d7d163484c3b81a3f5304298bce4eb6980257d427bc4a6a0d99f";

/// Promotion roles in the order of their suffix.
pub const PROMOTIONS: [Role; 4] = [Role::Bishop, Role::Knight, Role::Queen, Role::Rook];

/// One move of the vocabulary, in the mover's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Square the piece leaves.
    pub from: Square,
    /// Square it reaches.
    pub to: Square,
    /// Piece a pawn becomes.
    pub promotion: Option<Role>,
}

struct Vocabulary {
    entries: Vec<Entry>,
    /// Indexed by from, to and promotion slot; `u16::MAX` where there is no such move.
    indices: Vec<u16>,
}

/// The entries in index order.
pub fn entries() -> &'static [Entry] {
    &vocabulary().entries
}

/// The entry of a history token: 0 is none, else 1 + index.
pub fn of_token(token: u16) -> Option<&'static Entry> {
    entries().get(usize::from(token).checked_sub(1)?)
}

/// The index of a move given in the mover's frame, or `None` when it is not in the vocabulary.
pub fn index(from: Square, to: Square, promotion: Option<Role>) -> Option<u16> {
    vocabulary().indices.get(slot(from, to, promotion)?).copied().filter(|&index| index != u16::MAX)
}

/// The index of a move on the board, turned into the frame of the player who makes it.
///
/// Castling is written as the king's two-square move.
pub fn index_of(mv: Move, mover: shakmaty::Color) -> Option<u16> {
    match UciMove::from_standard(mv) {
        UciMove::Normal { from, to, promotion } => {
            let frame = |square: Square| if mover.is_black() { square.flip_vertical() } else { square };
            index(frame(from), frame(to), promotion)
        }
        UciMove::Put { .. } | UciMove::Null => None,
    }
}

impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        UciMove::Normal { from: self.from, to: self.to, promotion: self.promotion }.fmt(f)
    }
}

fn vocabulary() -> &'static Vocabulary {
    static VOCABULARY: OnceLock<Vocabulary> = OnceLock::new();
    VOCABULARY.get_or_init(build)
}

fn slot(from: Square, to: Square, promotion: Option<Role>) -> Option<usize> {
    let promotion = match promotion {
        None => 0,
        Some(role) => 1 + PROMOTIONS.iter().position(|&candidate| candidate == role)?,
    };
    Some((usize::from(from) * 64 + usize::from(to)) * 5 + promotion)
}

fn build() -> Vocabulary {
    let mut entries = Vec::with_capacity(SIZE);
    for from in Square::ALL {
        for to in Square::ALL {
            if from != to {
                entries.push(Entry { from, to, promotion: None });
            }
            let promotes =
                matches!((from.rank(), to.rank()), (Rank::Seventh, Rank::Eighth) | (Rank::Second, Rank::First));
            if promotes && from.file().distance(to.file()) <= 1 {
                entries.extend(PROMOTIONS.map(|role| Entry { from, to, promotion: Some(role) }));
            }
        }
    }
    entries.sort_by_cached_key(Entry::to_string);

    let mut indices = vec![u16::MAX; 64 * 64 * 5];
    for (index, entry) in (0u16..).zip(&entries) {
        let place = slot(entry.from, entry.to, entry.promotion).and_then(|slot| indices.get_mut(slot));
        if let Some(place) = place {
            *place = index;
        }
    }
    Vocabulary { entries, indices }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    #[test]
    fn the_fingerprint_is_that_of_the_published_vocabulary() {
        let text = entries().iter().map(Entry::to_string).collect::<Vec<_>>().join("\n");
        let digest = Sha256::digest(text.as_bytes());
        let hex = digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(entries().len(), SIZE);
        assert_eq!(entries()[0].to_string(), "a1a2");
        assert_eq!(hex, FINGERPRINT);
    }

    #[test]
    fn every_entry_finds_its_own_index() {
        for (i, entry) in entries().iter().enumerate() {
            assert_eq!(index(entry.from, entry.to, entry.promotion), Some(i as u16));
        }
        assert_eq!(index(Square::E4, Square::E4, None), None);
        assert_eq!(index(Square::A7, Square::C8, Some(Role::Queen)), None);
        assert_eq!(index(Square::A7, Square::A8, Some(Role::King)), None);
    }
}

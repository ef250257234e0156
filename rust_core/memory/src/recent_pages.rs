//! The pages of files that were asked for lately.

/// Places for pages; the next page of a place takes it.
const PLACES: usize = 1 << 16;
/// A number whose products with those that follow each other are far apart in their upper bits: the golden ratio's.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// Knows the pages that were asked for lately, so that the kernel, which takes a microsecond to answer, is not asked again for
/// those that are in use all the time. What is not asked for again is forgotten, as others take its place; what the
/// kernel has driven out meanwhile is read when it is used.
#[derive(Debug, Default)]
pub(crate) struct RecentPages {
    pages: Vec<usize>,
}

impl RecentPages {
    /// Notes a page, whose number is not 0; returns true if it was not noted lately.
    pub(crate) fn note(&mut self, page: usize) -> bool {
        if self.pages.is_empty() {
            self.pages.resize(PLACES, 0);
        }
        let spread = (page as u64).wrapping_mul(SPREAD) >> (u64::BITS - PLACES.ilog2());
        let place = usize::try_from(spread).unwrap_or(0);
        std::mem::replace(&mut self.pages[place], page) != page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_noted_until_others_take_their_places() {
        let mut recent = RecentPages::default();
        assert!((1..1000).all(|page| recent.note(page)));
        let again = (1..1000).filter(|&page| recent.note(page)).count();
        assert!(again < 20, "{again} of a thousand pages had to share a place");
        assert!((1000..1000 + 16 * PLACES).all(|page| recent.note(page)));
        assert!((1..1000).all(|page| recent.note(page)));
    }
}

//! The layouts of a page's columns, nested ones included, in depth-first order: a parent before its
//! children.

/// Layout of a column in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ColumnLayout {
    pub(super) values: ValueLayout,
    pub(super) nullable: bool,
    pub(super) length: Length,
    /// Number of the first column after the descendants of this one.
    pub(super) end: usize,
}

impl ColumnLayout {
    /// True if rows of this column take no bytes, apart from validity, and no column is inside it.
    pub(super) fn is_bare(self, number: usize) -> bool {
        match self.values {
            ValueLayout::Null => true,
            ValueLayout::Struct => self.end == number + 1,
            _ => false,
        }
    }

    /// True if the column may have a validity bitmap.
    pub(super) fn has_validity(self) -> bool {
        self.nullable && self.values != ValueLayout::Null
    }
}

/// Number of rows of a column. A `usize` is the number of the parent column, which is below its
/// own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// The rows of the page.
    Page,
    /// The rows of the parent struct.
    Same(usize),
    /// The rows of the parent list of fixed size times the list size.
    Times(usize, usize),
    /// The elements of the parent list.
    Elements(usize),
}

/// Layout of the values of a column in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueLayout {
    /// No buffers.
    Null,
    /// One bit per row.
    Bits,
    /// A fixed number of bytes per row.
    Fixed(usize),
    /// Offsets, and data.
    Var(OffsetWidth),
    /// Child columns with the same number of rows.
    Struct,
    /// Offsets into the rows of one child column.
    List(OffsetWidth),
    /// One child column with this number of rows per row.
    FixedList(usize),
}

/// Size of an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OffsetWidth {
    Four,
    Eight,
}

impl OffsetWidth {
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Four => 4,
            Self::Eight => 8,
        }
    }

    /// Largest offset.
    pub(super) fn max_data(self) -> u64 {
        match self {
            Self::Four => u64::from(i32::MAX.unsigned_abs()),
            Self::Eight => u64::from(u32::MAX),
        }
    }
}

impl ValueLayout {
    /// True if the size varies from row to row, so that the rows per page can only be estimated.
    pub(super) fn varies(self) -> bool {
        matches!(self, Self::Var(_) | Self::List(_))
    }

    pub(super) fn num_buffers(self) -> usize {
        match self {
            Self::Null => 0,
            Self::Struct | Self::FixedList(_) => 1,
            Self::Bits | Self::Fixed(_) | Self::List(_) => 2,
            Self::Var(_) => 3,
        }
    }

    /// Bytes of the values, or of the offsets, of `rows` rows.
    pub(super) fn values_len(self, rows: u64) -> u64 {
        match self {
            Self::Null | Self::Struct | Self::FixedList(_) => 0,
            Self::Bits => rows.div_ceil(8),
            Self::Fixed(width) => rows.saturating_mul(width as u64),
            Self::Var(_) | Self::List(_) if rows == 0 => 0,
            Self::Var(width) | Self::List(width) => (rows + 1) * width.bytes() as u64,
        }
    }
}

/// Numbers of the direct children of a column.
pub(super) fn children(layouts: &[ColumnLayout], column: usize) -> impl Iterator<Item = usize> {
    siblings(layouts, column + 1, layouts[column].end)
}

/// Numbers of the columns of `first..end` that are not nested in another of them.
fn siblings(layouts: &[ColumnLayout], first: usize, end: usize) -> impl Iterator<Item = usize> {
    let mut next = first;
    std::iter::from_fn(move || {
        let column = (next < end).then_some(next)?;
        next = layouts[column].end;
        Some(column)
    })
}

/// Numbers of the top-level columns.
pub(super) fn top_level(layouts: &[ColumnLayout]) -> impl Iterator<Item = usize> {
    siblings(layouts, 0, layouts.len())
}

/// True if a nested column makes the size of a row of this column vary.
pub(super) fn has_varying_descendant(layouts: &[ColumnLayout], column: usize) -> bool {
    layouts[column + 1..layouts[column].end].iter().any(|layout| layout.values.varies())
}

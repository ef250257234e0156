//! The types that pages carry, and how each is laid out.

use std::fmt::Write as _;

use arrow_schema::{DataType, Field, SchemaRef};
use sha2::{Digest, Sha256};

use super::types::{can_pack, flat_layout, plain_type, takes_bytes};

/// A column that no page can carry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column:?} has type {data_type}, which pages do not carry")]
pub struct UnsupportedType {
    /// The column's name.
    pub column: String,
    /// Its type.
    pub data_type: DataType,
}

/// A schema whose batches can travel as pages.
#[derive(Clone, Debug)]
pub struct PageSchema {
    schema: SchemaRef,
    /// The types that travel in place of the schema's; none where a column travels as it is.
    travels_as: Vec<Option<DataType>>,
    /// Each column, before those inside it.
    layouts: Vec<ColumnLayout>,
    hash: [u8; 32],
}

impl PageSchema {
    /// Checks each column's type.
    ///
    /// # Errors
    /// The first column whose type has no layout here: unions, binaries and lists of a fixed size of 0,
    /// lists of a fixed size of what takes no bytes, and dictionaries and runs that cannot be packed
    /// again from any rows.
    pub fn try_new(schema: SchemaRef) -> Result<Self, UnsupportedType> {
        let mut layouts = Vec::with_capacity(schema.fields().len());
        let mut travels_as = Vec::with_capacity(schema.fields().len());
        let mut text = String::from("headgate page schema 1\n");
        for field in schema.fields() {
            let plain = plain_type(field.data_type());
            let name = lay_out(&mut layouts, &plain, field.is_nullable(), Length::Page);
            let Some(name) = name.filter(|_| can_pack(field.data_type())) else {
                return Err(UnsupportedType {
                    column: field.name().clone(),
                    data_type: field.data_type().clone(),
                });
            };
            travels_as.push(Some(plain).filter(|plain| plain != field.data_type()));
            // The length makes the text unambiguous whatever the name holds.
            let column = field.name();
            writeln!(text, "{}:{column} {name}", column.len()).expect("a String takes any text");
        }
        Ok(Self { schema, travels_as, layouts, hash: Sha256::digest(text.as_bytes()).into() })
    }

    /// SHA-256 of the names and types, equal on both ends of a channel.
    ///
    /// Nullability, metadata and the labels of time zones are left out.
    #[must_use]
    pub fn hash(&self) -> [u8; 32] {
        self.hash
    }

    /// The start of the [hash](Self::hash), repeated in each page.
    pub(super) fn fingerprint(&self) -> u32 {
        let first = self.hash.first_chunk().expect("a hash has 32 bytes");
        u32::from_le_bytes(*first)
    }

    /// The Arrow schema of the batches that are read.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The type in which a column of the schema travels, if not in its own.
    pub(super) fn travels_as(&self, column: usize) -> Option<&DataType> {
        self.travels_as[column].as_ref()
    }

    /// Each column, before those inside it.
    pub(super) fn layouts(&self) -> &[ColumnLayout] {
        &self.layouts
    }

    /// How many buffers each page has.
    pub(super) fn num_buffers(&self) -> usize {
        self.layouts.iter().map(|layout| layout.values.num_buffers()).sum()
    }
}

/// How a column lies in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ColumnLayout {
    pub(super) values: ValueLayout,
    pub(super) nullable: bool,
    pub(super) length: Length,
    /// The number of the column after those inside it.
    pub(super) end: usize,
}

impl ColumnLayout {
    /// Whether there may be a bit per row that says whether it is null.
    pub(super) fn has_validity(self) -> bool {
        self.nullable && self.values != ValueLayout::Null
    }
}

/// How many rows a column has; columns are meant by their numbers, which are below its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// As many as the page.
    Page,
    /// As many as the struct it is inside.
    Same(usize),
    /// So many times the rows of the list of fixed size that it is inside.
    Times(usize, usize),
    /// As many as the elements of the list it is inside.
    Elements(usize),
}

/// How a column's values lie in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueLayout {
    /// Nothing but the row count.
    Null,
    /// One bit per row.
    Bits,
    /// So many bytes per row.
    Fixed(usize),
    /// Offsets of so many bytes each, and data.
    Var(OffsetWidth),
    /// Columns of as many rows.
    Struct,
    /// Offsets of so many bytes each, into the rows of one column.
    List(OffsetWidth),
    /// One column of so many times as many rows.
    FixedList(usize),
}

/// Bytes per offset.
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

    /// The largest offset.
    pub(super) fn max_data(self) -> u64 {
        match self {
            Self::Four => u64::from(i32::MAX.unsigned_abs()),
            Self::Eight => u64::from(u32::MAX),
        }
    }
}

impl ValueLayout {
    /// Whether rows differ in what they take, so that their number in a page can only be guessed.
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

    /// Bytes of the values, or of the offsets, of so many rows.
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

/// Adds the layouts of a plain type and of those inside it; returns its name in the hash, none if pages
/// do not carry it.
fn lay_out(
    layouts: &mut Vec<ColumnLayout>,
    data_type: &DataType,
    nullable: bool,
    length: Length,
) -> Option<String> {
    use DataType as D;
    let number = layouts.len();
    let values = ValueLayout::Null;
    layouts.push(ColumnLayout { values, nullable, length, end: number + 1 });
    let mut inside =
        |field: &Field, length| lay_out(layouts, field.data_type(), field.is_nullable(), length);
    let (values, name) = match data_type {
        D::List(field) => {
            let name = inside(field, Length::Elements(number))?;
            (ValueLayout::List(OffsetWidth::Four), format!("list({name})"))
        }
        D::LargeList(field) => {
            let name = inside(field, Length::Elements(number))?;
            (ValueLayout::List(OffsetWidth::Eight), format!("large_list({name})"))
        }
        D::Map(field, _) => {
            // Their names differ from library to library.
            let entries = DataType::Struct(match field.data_type() {
                D::Struct(fields) => ["key", "value"]
                    .into_iter()
                    .zip(fields)
                    .map(|(name, field)| field.as_ref().clone().with_name(name))
                    .collect(),
                _ => return None,
            });
            let entries = field.as_ref().clone().with_data_type(entries);
            let name = inside(&entries, Length::Elements(number))?;
            (ValueLayout::List(OffsetWidth::Four), format!("map({name})"))
        }
        D::FixedSizeList(field, n) if *n > 0 && takes_bytes(field.data_type()) => {
            let times = usize::try_from(*n).ok()?;
            let name = inside(field, Length::Times(number, times))?;
            (ValueLayout::FixedList(times), format!("fixed_size_list({name},{n})"))
        }
        D::Struct(fields) => {
            let mut text = String::from("struct(");
            for field in fields {
                let (column, name) = (field.name(), inside(field, Length::Same(number))?);
                write!(text, "{}:{column} {name},", column.len()).expect("a String takes any text");
            }
            (ValueLayout::Struct, text + ")")
        }
        flat => flat_layout(flat)?,
    };
    let end = layouts.len();
    layouts[number] = ColumnLayout { values, end, ..layouts[number] };
    Some(name)
}

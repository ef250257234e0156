//! The schema of pages: supported types and their layouts.

use std::fmt::Write as _;

use arrow_schema::{DataType, Field, SchemaRef};
use sha2::{Digest, Sha256};

use super::column_layout::{ColumnLayout, Length, OffsetWidth, ValueLayout};
use super::types::{can_pack, flat_layout, plain_type, takes_bytes};

/// Pages do not support the type of a column.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column:?} has type {data_type}, which pages do not carry")]
pub struct UnsupportedType {
    /// Name of the column.
    pub column: String,
    /// Type of the column.
    pub data_type: DataType,
}

/// A schema whose batches can be sent as pages.
#[derive(Clone, Debug)]
pub struct PageSchema {
    schema: SchemaRef,
    /// Types in which columns are sent; `None` for a column that is sent in its own type.
    travels_as: Vec<Option<DataType>>,
    /// All columns, depth first, parents before children.
    layouts: Vec<ColumnLayout>,
    hash: [u8; 32],
}

impl PageSchema {
    /// Checks the type of each column.
    ///
    /// # Errors
    /// [`UnsupportedType`] for the first unsupported column: unions, binaries and lists of fixed
    /// size 0, lists of fixed size whose elements take no bytes, and dictionary or run-end encoded
    /// types that cannot encode arbitrary rows.
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
            // The length makes the text unambiguous for any name.
            let column = field.name();
            writeln!(text, "{}:{column} {name}", column.len()).expect("a String takes any text");
        }
        Ok(Self { schema, travels_as, layouts, hash: Sha256::digest(text.as_bytes()).into() })
    }

    /// SHA-256 of the names and types, equal on both ends of a channel.
    ///
    /// Excludes nullability, metadata and the labels of time zones.
    #[must_use]
    pub fn hash(&self) -> [u8; 32] {
        self.hash
    }

    /// Start of the [hash](Self::hash), repeated in each page.
    pub(super) fn fingerprint(&self) -> u32 {
        let first = self.hash.first_chunk().expect("a hash has 32 bytes");
        u32::from_le_bytes(*first)
    }

    /// Arrow schema of the batches that are read.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Type in which a column is sent, if it differs from its own.
    pub(super) fn travels_as(&self, column: usize) -> Option<&DataType> {
        self.travels_as[column].as_ref()
    }

    /// True if readers get the columns as they are in pages.
    pub(super) fn is_plain(&self) -> bool {
        self.travels_as.iter().all(Option::is_none)
    }

    /// All columns, depth first, parents before children.
    pub(super) fn layouts(&self) -> &[ColumnLayout] {
        &self.layouts
    }

    /// Number of buffers of a page.
    pub(super) fn num_buffers(&self) -> usize {
        self.layouts.iter().map(|layout| layout.values.num_buffers()).sum()
    }
}

/// Adds the layouts of a plain type and its children; returns its name in the hash, `None` if pages
/// do not support it.
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
            // The names of keys and values differ between libraries.
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

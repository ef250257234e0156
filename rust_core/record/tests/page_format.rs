//! The bytes of pages: golden bytes, the hash of the schema, and hostile input.

#![allow(clippy::unwrap_used, reason = "a panic in a test reports the failure")]

mod support;

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Fields, Schema, TimeUnit, UnionFields, UnionMode};
use arrow_select::take::take_record_batch;
use bytes::Bytes;
use headgate_record::{PageError, PageSchema, Source, UnsupportedType, encode_rows, read_page};
use support::Random;

fn golden_schema() -> Arc<PageSchema> {
    let schema = Schema::new(vec![
        Field::new("n", DataType::Int32, true),
        Field::new("b", DataType::Boolean, true),
        Field::new("s", DataType::Utf8, false),
    ]);
    Arc::new(PageSchema::try_new(Arc::new(schema)).unwrap())
}

fn golden_page() -> Vec<u8> {
    let schema = golden_schema();
    let columns: [(&str, ArrayRef); 3] = [
        ("n", Arc::new(Int32Array::from(vec![Some(7), None, Some(-2)]))),
        ("b", Arc::new(BooleanArray::from(vec![true, false, true]))),
        ("s", Arc::new(StringArray::from(vec!["é", "", "abc"]))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let source = Source::try_new(&schema, &batch).unwrap();
    encode_rows(&schema, &source, &[0, 1, 2]).unwrap()
}

#[test]
fn golden_bytes() {
    let mut expected = Vec::new();
    let words =
        |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    expected.extend(b"HDGP\x01\0\0\0");
    // Rows, columns, buffers, length of the page; the schema's fingerprint; null counts.
    expected.extend(words(&[3, 3, 7, 448, 0xddd2_9e4f, 1, 0, 0]));
    // Validity and values of n; no validity and values of b; no validity, offsets and data of s.
    expected.extend(words(&[128, 1, 192, 12, 0, 0, 256, 1, 0, 0, 320, 16, 384, 5]));
    for buffer in [
        &[][..],
        &[0b101],
        &words(&[7, 0, 0xffff_fffe]),
        &[0b101],
        &words(&[0, 2, 2, 5]),
        "éabc".as_bytes(),
    ] {
        expected.extend(buffer);
        expected.resize(expected.len().next_multiple_of(64), 0);
    }
    assert_eq!(golden_page(), expected);
}

fn hash(fields: &[(&str, DataType, bool)]) -> [u8; 32] {
    let fields: Vec<_> = fields
        .iter()
        .map(|(name, data_type, nullable)| Field::new(*name, data_type.clone(), *nullable))
        .collect();
    PageSchema::try_new(Arc::new(Schema::new(fields))).unwrap().hash()
}

#[test]
fn the_hash_depends_on_names_and_types() {
    use DataType::{Int32, LargeUtf8, Timestamp, Utf8};
    let hex: String = golden_schema().hash().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "4f9ed2dd52c0c7c162a50492d8da15f8924b563e5f402e2f3923771722b5bcee");
    let zoned = |zone: &str| Timestamp(TimeUnit::Microsecond, Some(zone.into()));
    let same = [
        hash(&[("a", Int32, true), ("t", zoned("UTC"), true)]),
        hash(&[("a", Int32, false), ("t", zoned("Asia/Tokyo"), true)]),
    ];
    assert_eq!(same[0], same[1]);
    let mut hashes = vec![
        same[0],
        hash(&[("t", zoned("UTC"), true), ("a", Int32, true)]),
        hash(&[("a", Int32, true), ("t", Timestamp(TimeUnit::Microsecond, None), true)]),
        hash(&[("a", Utf8, true)]),
        hash(&[("a", LargeUtf8, true)]),
        hash(&[("a", Int32, true)]),
        hash(&[("a int32\n1:b", Int32, true)]),
        hash(&[("a", Int32, true), ("b", Int32, true)]),
        hash(&[]),
    ];
    for data_type in [support::types(), support::nested_types()].concat() {
        if !matches!(data_type, Int32 | Utf8 | LargeUtf8) {
            hashes.push(hash(&[("a", data_type, true)]));
        }
    }
    let count = hashes.len();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), count);
}

#[test]
fn types_without_a_layout_are_refused_by_name() {
    let item = Arc::new(Field::new("item", DataType::Int32, true));
    let union = UnionFields::try_new(vec![0], vec![Arc::clone(&item)]).unwrap();
    let union = DataType::Union(union, UnionMode::Sparse);
    let of_unions = Arc::new(Field::new("item", union.clone(), true));
    for data_type in [
        DataType::FixedSizeList(item, 0),
        DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Null)),
        DataType::Dictionary(
            Box::new(DataType::Int32),
            Box::new(DataType::Struct(Fields::empty())),
        ),
        DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Null, true)), 2),
        DataType::FixedSizeBinary(0),
        DataType::FixedSizeBinary(-1),
        DataType::List(of_unions.clone()),
        DataType::Struct(vec![of_unions].into()),
        union,
    ] {
        let fields = vec![
            Field::new("ok", DataType::Int8, true),
            Field::new("bad", data_type.clone(), true),
        ];
        let error = PageSchema::try_new(Arc::new(Schema::new(fields))).unwrap_err();
        assert_eq!(error, UnsupportedType { column: "bad".to_owned(), data_type });
    }
}

/// The golden page with one word of its header changed.
fn with_word(at: usize, word: u32) -> PageError {
    let mut page = golden_page();
    page[at..at + 4].copy_from_slice(&word.to_le_bytes());
    read_page(&golden_schema(), page.into()).unwrap_err()
}

#[test]
fn each_invalid_header_field_is_rejected() {
    use PageError::{
        BufferEnd, BufferLength, BufferOffset, Columns, Length, Magic, NullCount, Offsets,
        TooManyRows, Version,
    };
    assert!(matches!(with_word(0, 1), Magic { got: 1 }));
    assert!(matches!(with_word(4, 2), Version { got: 2, .. }));
    assert!(matches!(with_word(4, 0x1_0001), Version { .. }));
    assert!(matches!(with_word(8, 2), BufferLength { rows: 2, part: "values", .. }));
    assert!(matches!(with_word(8, 4), NullCount { declared: 1, got: 2, .. }));
    assert!(matches!(with_word(8, 1 << 31), TooManyRows { .. }));
    assert!(matches!(with_word(8, 0), BufferLength { .. }));
    assert!(matches!(with_word(12, 4), Columns { columns: 4, .. }));
    assert!(matches!(with_word(16, u32::MAX), Columns { buffers: u32::MAX, .. }));
    assert!(matches!(with_word(20, 512), Length { declared: 512, got: 448 }));
    assert!(matches!(with_word(24, 1), PageError::OtherSchema { got: 1, expected: 0xddd2_9e4f }));
    assert!(matches!(with_word(28, 2), NullCount { declared: 2, got: 1, .. }));
    assert!(matches!(with_word(28, 0), BufferLength { part: "validity", .. }));
    assert!(matches!(with_word(32, 1), BufferLength { part: "validity", .. }));
    assert!(matches!(with_word(36, 1), NullCount { declared: 1, got: 0, .. }));
    assert!(matches!(with_word(40, 0), BufferOffset { buffer: 0, offset: 0, earliest: 128 }));
    assert!(matches!(with_word(40, 129), BufferOffset { .. }));
    assert!(matches!(with_word(48, 128), BufferOffset { buffer: 1, earliest: 129, .. }));
    assert!(matches!(with_word(48, 448), BufferEnd { buffer: 1, end: 460, length: 448 }));
    assert!(matches!(with_word(52, u32::MAX), BufferEnd { .. }));
    assert!(matches!(with_word(56, 64), BufferOffset { buffer: 2, .. }));
    assert!(matches!(with_word(84, 12), BufferLength { part: "offsets", .. }));
    assert!(matches!(with_word(92, 4), Offsets { data: 4, .. }));
    assert!(matches!(with_word(320, 1), Offsets { .. }));
    assert!(matches!(with_word(324, 3), Offsets { .. }));
    assert!(matches!(with_word(324, u32::MAX), Offsets { .. }));
    assert!(matches!(with_word(324, 1), PageError::InvalidColumn { .. }));
    assert!(matches!(with_word(384, 0xffff_ffff), PageError::InvalidColumn { .. }));
}

#[test]
fn invalid_text_names_its_column() {
    let said = |error| match error {
        PageError::InvalidColumn { column, source } => format!("{column}: {source}"),
        other => panic!("{other}"),
    };
    let split = said(with_word(324, 1));
    assert!(split.ends_with("incomplete utf-8 byte sequence from index 0"), "{split}");
    let invalid = said(with_word(384, 0xff00_a9c3));
    assert!(invalid.contains("Invalid UTF8 sequence at string index 2 (2..5)"), "{invalid}");
    assert!(invalid.starts_with("s: "));
}

/// Only the fingerprint distinguishes these schemas: their layouts are equal.
#[test]
fn a_page_of_another_schema_is_rejected() {
    let schema = |name: &str, data_type: DataType| {
        PageSchema::try_new(Arc::new(Schema::new(vec![Field::new(name, data_type, true)]))).unwrap()
    };
    let fingerprint = |schema: &PageSchema| {
        let [a, b, c, d, ..] = schema.hash();
        u32::from_le_bytes([a, b, c, d])
    };
    let written = Arc::new(schema("n", DataType::Int64));
    let column: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(i64::MAX)]));
    let batch = RecordBatch::try_from_iter([("n", column)]).unwrap();
    let source = Source::try_new(&written, &batch).unwrap();
    let page = Bytes::from(encode_rows(&written, &source, &[0, 1, 2]).unwrap());
    assert_eq!(read_page(&written, page.clone()).unwrap(), batch);
    for other in [
        schema("n", DataType::Float64),
        schema("n", DataType::UInt64),
        schema("n", DataType::Timestamp(TimeUnit::Second, None)),
        schema("m", DataType::Int64),
    ] {
        let Err(PageError::OtherSchema { got, expected }) = read_page(&other, page.clone()) else {
            panic!("a page of {:?} read as {:?}", written.schema(), other.schema());
        };
        assert_eq!((got, expected), (fingerprint(&written), fingerprint(&other)));
    }
}

#[test]
fn a_truncated_page_is_rejected() {
    let page = Bytes::from(golden_page());
    for end in 0..page.len() {
        assert!(read_page(&golden_schema(), page.slice(..end)).is_err());
    }
    let longer = [&page[..], &[0]].concat();
    assert!(matches!(
        read_page(&golden_schema(), longer.into()),
        Err(PageError::Length { declared: 448, got: 449 })
    ));
}

/// The effects that a flipped bit of a page may have. A page has no checksum of its own: the frame or the file that holds it
/// has one over all its bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Flip {
    /// The page is refused.
    Refused,
    /// Nothing reads the bit.
    Unread,
    /// Another value in this column, which the format allows.
    Value(usize),
}

/// Returns what each flipped bit of the golden page must do: its bytes, the bits of them, and the effect.
/// All others must be refused.
fn effects() -> Vec<(std::ops::Range<usize>, u8, Flip)> {
    use Flip::{Unread, Value};
    let (n, b, s) = (0, 1, 2);
    vec![
        // Padding of the header, bits behind the last row, and padding of the validity of n.
        (96..128, 0xFF, Unread),
        (128..129, 0b1111_1000, Unread),
        (129..192, 0xFF, Unread),
        // The values of n; the second one is a null.
        (192..196, 0xFF, Value(n)),
        (196..200, 0xFF, Unread),
        (200..204, 0xFF, Value(n)),
        (204..256, 0xFF, Unread),
        (256..257, 0b0000_0111, Value(b)),
        (256..257, 0b1111_1000, Unread),
        (257..320, 0xFF, Unread),
        // Offsets 0, 2, 2, 5 that stay in order and at the start of a character: 0, 0, 2, 5 and 0, 2, 3, 5.
        (324..325, 0b0000_0010, Value(s)),
        (328..329, 0b0000_0001, Value(s)),
        (336..384, 0xFF, Unread),
        // The bits of two bytes of one character, and of three letters, that keep the text UTF-8.
        (384..385, 0b0001_1101, Value(s)),
        (385..386, 0b0011_1111, Value(s)),
        (386..389, 0b0111_1111, Value(s)),
        (389..448, 0xFF, Unread),
    ]
}

#[test]
fn each_flipped_bit_of_a_page_is_refused_or_changes_the_value_that_it_is_of() {
    let (schema, page) = (golden_schema(), golden_page());
    let right = read_page(&schema, page.clone().into()).unwrap();
    let effects = effects();
    for bit in 0..8 * page.len() {
        let (at, mask) = (bit / 8, 1 << (bit % 8));
        let mut flipped = page.clone();
        flipped[at] ^= mask;
        let effect = match read_page(&schema, flipped.into()) {
            Err(error) => {
                assert!(!error.to_string().is_empty());
                Flip::Refused
            }
            Ok(batch) if batch == right => Flip::Unread,
            Ok(batch) => {
                let differs = |column: &usize| batch.column(*column) != right.column(*column);
                let columns: Vec<_> = (0..3).filter(differs).collect();
                assert_eq!((columns.len(), batch.num_rows()), (1, 3), "byte {at}, bit {bit}");
                Flip::Value(columns[0])
            }
        };
        let listed =
            effects.iter().find(|(bytes, bits, _)| bytes.contains(&at) && bits & mask != 0);
        let want = listed.map_or(Flip::Refused, |(_, _, effect)| *effect);
        assert_eq!(effect, want, "byte {at}, bit {bit}");
    }
}

#[test]
fn flipped_bytes_give_an_error_or_a_batch_within_the_page() {
    let mut random = Random(1);
    let (mut refused, mut read) = (0, 0);
    for round in 0..60 {
        let types = [support::types(), support::nested_types(), support::packed_types()].concat();
        let types: Vec<_> = (0..1 + random.below(5))
            .map(|_| (types[random.below(types.len())].clone(), random.below(2) == 0))
            .collect();
        let schema = Arc::new(PageSchema::try_new(support::schema(&types)).unwrap());
        let (batch, _) = support::batches(schema.schema(), 1 + round, 20, &mut random);
        let source = Source::try_new(&schema, &batch).unwrap();
        let rows: Vec<u32> = (0..u32::try_from(batch.num_rows()).unwrap()).collect();
        let page = encode_rows(&schema, &source, &rows).unwrap();
        for _ in 0..400 {
            let mut page = page.clone();
            for _ in 0..1 + random.below(3) {
                // Change headers more often than bodies.
                let end = if random.below(2) == 0 { page.len() } else { page.len().min(256) };
                let at = random.below(end);
                page[at] ^= random.next().to_le_bytes()[0] | 1;
            }
            match read_page(&schema, page.into()) {
                Err(_) => refused += 1,
                Ok(batch) => {
                    // Every value of the batch can be read.
                    for column in batch.columns() {
                        column.to_data().validate_full().unwrap();
                    }
                    let last = u32::try_from(batch.num_rows()).unwrap().saturating_sub(1);
                    let rows = arrow_array::UInt32Array::from(vec![0, last]);
                    take_record_batch(&batch, &rows).unwrap();
                    assert!(!format!("{batch:?}").is_empty());
                    read += 1;
                }
            }
        }
    }
    assert!(refused > 1000 && read > 1000, "{refused} refused, {read} read");
}

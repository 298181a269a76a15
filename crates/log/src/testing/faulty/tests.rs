//! The disk that tests others is tested itself.

use super::*;

fn file(disk: &FaultyDisk, operation: Operation) -> FileId {
    match disk.execute(operation).unwrap() {
        Outcome::File(file) => file,
        other => panic!("{other:?}"),
    }
}

fn create(disk: &FaultyDisk, path: &str) -> FileId {
    let path = PathBuf::from(path);
    file(disk, Operation::Create { path })
}

fn write(disk: &FaultyDisk, file: FileId, position: u64, text: &str) -> Result<Outcome, DiskError> {
    let bytes = vec![Bytes::copy_from_slice(text.as_bytes())];
    disk.execute(Operation::Write {
        file,
        position,
        bytes,
    })
}

fn sync(disk: &FaultyDisk, file: FileId) -> Result<Outcome, DiskError> {
    disk.execute(Operation::SyncData { file })
}

fn sync_names(disk: &FaultyDisk) {
    let path = PathBuf::from("/");
    disk.execute(Operation::SyncDirectory { path }).unwrap();
}

fn content(disk: &FaultyDisk, path: &str) -> Option<String> {
    let bytes = disk.content(Path::new(path))?;
    Some(String::from_utf8(bytes).unwrap())
}

/// A durable file `/a` that holds `old`.
fn disk_with_file() -> (FaultyDisk, FileId) {
    let disk = FaultyDisk::new();
    let a = create(&disk, "/a");
    write(&disk, a, 0, "old").unwrap();
    sync(&disk, a).unwrap();
    sync_names(&disk);
    (disk, a)
}

#[test]
fn what_was_not_synced_is_lost_with_the_power_and_not_with_the_process() {
    let (disk, a) = disk_with_file();
    write(&disk, a, 0, "new").unwrap();
    let b = create(&disk, "/b");
    write(&disk, b, 0, "b").unwrap();
    sync(&disk, b).unwrap();
    let other = disk.fork();
    disk.kill();
    assert_eq!(content(&disk, "/a").unwrap(), "new");
    assert_eq!(content(&disk, "/b").unwrap(), "b");
    assert!(write(&disk, a, 0, "x").is_err(), "its files are closed");
    other.power_loss(Survival::Nothing);
    assert_eq!(content(&other, "/a").unwrap(), "old");
    assert_eq!(content(&other, "/b"), None, "its name was not synced");
}

#[test]
fn any_part_may_survive() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..400 {
        let (disk, a) = disk_with_file();
        write(&disk, a, 0, "12").unwrap();
        write(&disk, a, 2, "3").unwrap();
        create(&disk, "/b");
        disk.power_loss(Survival::Some(seed));
        seen.insert((
            content(&disk, "/a").unwrap(),
            content(&disk, "/b").is_some(),
        ));
    }
    for text in ["old", "123", "12d", "ol3", "1ld", "o2d", "1l3"] {
        for name in [true, false] {
            assert!(seen.contains(&(text.to_owned(), name)), "{text} {name}");
        }
    }
    let (disk, a) = disk_with_file();
    write(&disk, a, 0, "12").unwrap();
    write(&disk, a, 2, "3").unwrap();
    disk.power_loss(Survival::Last);
    assert_eq!(content(&disk, "/a").unwrap(), "ol3");
}

#[test]
fn a_failed_sync_is_not_made_good_by_the_next() {
    let (disk, a) = disk_with_file();
    write(&disk, a, 0, "n").unwrap();
    disk.fail_at(disk.operation_count(), Fault::Error);
    assert!(sync(&disk, a).is_err());
    write(&disk, a, 2, "w").unwrap();
    sync(&disk, a).unwrap();
    assert_eq!(content(&disk, "/a").unwrap(), "nlw");
    let again = disk.fork();
    disk.power_loss(Survival::All);
    assert_eq!(content(&disk, "/a").unwrap(), "olw");
    write(&again, a, 0, "n").unwrap();
    sync(&again, a).unwrap();
    again.power_loss(Survival::Nothing);
    assert_eq!(content(&again, "/a").unwrap(), "nlw", "written again");
}

#[test]
fn a_lying_sync_says_yes_and_does_nothing() {
    let (disk, a) = disk_with_file();
    write(&disk, a, 0, "new").unwrap();
    disk.fail_at(disk.operation_count(), Fault::Lie);
    sync(&disk, a).unwrap();
    disk.power_loss(Survival::Nothing);
    assert_eq!(content(&disk, "/a").unwrap(), "old");
}

#[test]
fn writes_fail_in_part_and_the_machine_stops() {
    let (disk, a) = disk_with_file();
    disk.fail_at(disk.operation_count(), Fault::Short(2));
    assert_eq!(
        write(&disk, a, 0, "new").unwrap_err().kind,
        DiskErrorKind::Failed
    );
    assert_eq!(content(&disk, "/a").unwrap(), "ned");
    disk.fail_at(disk.operation_count(), Fault::Full(1));
    assert_eq!(
        write(&disk, a, 0, "xyz").unwrap_err().kind,
        DiskErrorKind::Full
    );
    assert_eq!(content(&disk, "/a").unwrap(), "xed");
    disk.fail_at(disk.operation_count(), Fault::Stop(0));
    let error = write(&disk, a, 0, "abc").unwrap_err();
    assert_eq!(
        error.to_string(),
        "writing 3 bytes at 0 of /a: the machine has stopped"
    );
    assert!(sync(&disk, a).is_err() && disk.is_stopped());
    disk.power_loss(Survival::Nothing);
    assert_eq!(content(&disk, "/a").unwrap(), "old");
}

#[test]
fn bits_flip_where_something_is_written_or_once_in_what_is_read() {
    let (disk, a) = disk_with_file();
    disk.fail_at(disk.operation_count(), Fault::Flip(8));
    write(&disk, a, 1, "ew").unwrap();
    assert_eq!(disk.flipped(), [(PathBuf::from("/a"), 16)]);
    assert_eq!(content(&disk, "/a").unwrap(), "oev");
    sync(&disk, a).unwrap();
    disk.power_loss(Survival::Nothing);
    assert_eq!(content(&disk, "/a").unwrap(), "oev");
    let path = PathBuf::from("/a");
    let a = file(&disk, Operation::Open { path });
    disk.fail_at(disk.operation_count(), Fault::Flip(0));
    let read = |disk: &FaultyDisk| {
        let read = Operation::Read {
            file: a,
            position: 0,
            bytes: 10,
        };
        match disk.execute(read).unwrap() {
            Outcome::Bytes(bytes) => bytes.to_vec(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(read(&disk), b"nev");
    assert_eq!(read(&disk), b"oev");
}

#[test]
fn names_are_lost_come_back_and_change_hands() {
    let (disk, a) = disk_with_file();
    let (from, to) = (PathBuf::from("/a"), PathBuf::from("/c"));
    disk.execute(Operation::Rename { from, to }).unwrap();
    let renamed = disk.fork();
    disk.power_loss(Survival::Nothing);
    assert_eq!(
        (content(&disk, "/a").unwrap(), content(&disk, "/c")),
        ("old".into(), None)
    );
    sync_names(&renamed);
    let path = PathBuf::from("/c");
    renamed.execute(Operation::Remove { path }).unwrap();
    write(&renamed, a, 0, "x").unwrap();
    assert_eq!(content(&renamed, "/c"), None, "removed, still open");
    renamed.power_loss(Survival::Nothing);
    assert_eq!(content(&renamed, "/c").unwrap(), "old", "it comes back");
}

#[test]
fn space_is_limited_and_returns() {
    let (disk, a) = disk_with_file();
    disk.set_space(Some(5));
    assert_eq!(
        write(&disk, a, 1, "12345").unwrap_err().kind,
        DiskErrorKind::Full
    );
    assert_eq!(content(&disk, "/a").unwrap(), "o1234");
    write(&disk, a, 0, "12345").unwrap();
    let more = Operation::Allocate { file: a, bytes: 6 };
    assert_eq!(
        disk.execute(more.clone()).unwrap_err().kind,
        DiskErrorKind::Full
    );
    disk.set_space(None);
    disk.execute(more).unwrap();
    assert_eq!(disk.trace().last().unwrap().what, "allocate");
}

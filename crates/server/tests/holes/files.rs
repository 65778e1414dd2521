//! Files that hold evidence and secrets belong to the user who runs the server.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;

use crate::support::{Gate, Reply, Speech};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn hole_07_the_database_is_private() {
    let answer = |_: &_| Reply::json(200, &json!({}));
    let gate = Gate::with(json!({}), answer, |config| {
        config.data = config.data.take().map(|folder| folder.join("new"));
    })
    .await;
    gate.ask(&Speech::Chat.says(false, "hello").by("a", "s")).await;
    let folder = gate.folder.path().join("new");
    assert_eq!(mode(&folder), 0o700);
    let files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap()).collect();
    let named =
        |ending: &str| files.iter().any(|f| f.file_name() == *format!("deadstop.db{ending}"));
    assert!(named("") && named("-wal"), "{files:?}");
    for file in &files {
        assert_eq!(mode(&file.path()), 0o600, "{file:?}");
    }
}

#[tokio::test]
async fn hole_07_an_older_database_is_closed_to_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deadstop.db");
    std::fs::write(&path, []).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let store = deadstop_store::Store::open(&path).await.unwrap();
    assert_eq!(mode(&path), 0o640);
    store.close().await;
}

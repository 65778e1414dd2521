//! Settings of a project, by name: how long things are kept, what is captured, own patterns.

use deadstop_core::Time;

use crate::audit::AuditEvent;
use crate::backend::{Row, sql};
use crate::{Store, StoreError};

/// A setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Its project.
    pub project: String,
    /// Its name.
    pub name: String,
    /// Its value, as JSON.
    pub value: String,
    /// When it was last changed.
    pub changed: Time,
    /// By whom.
    pub who: String,
}

impl Store {
    /// One setting.
    pub async fn setting(&self, project: &str, name: &str) -> Result<Option<Setting>, StoreError> {
        let query = sql("SELECT * FROM settings WHERE project = $1 AND name = $2");
        let found = self.backend.row(query.bind(project).bind(name)).await?;
        found.as_ref().map(read).transpose()
    }

    /// All settings of all projects.
    pub async fn settings(&self) -> Result<Vec<Setting>, StoreError> {
        let query = sql("SELECT * FROM settings ORDER BY project, name");
        self.backend.rows(query).await?.iter().map(read).collect()
    }

    /// Sets it.
    pub async fn put_setting(
        &self,
        setting: &Setting,
        audit: Option<&AuditEvent>,
    ) -> Result<(), StoreError> {
        let query = sql("INSERT INTO settings (project, name, value, changed_ms, who) \
             VALUES ($1, $2, $3, $4, $5) ON CONFLICT (project, name) DO UPDATE SET \
             value = excluded.value, changed_ms = excluded.changed_ms, who = excluded.who");
        let query = query
            .bind(&setting.project)
            .bind(&setting.name)
            .bind(&setting.value)
            .bind(setting.changed)
            .bind(&setting.who);
        self.change(query, audit).await?;
        Ok(())
    }

    /// Sets it unless it is set; returns the one that was set first.
    pub async fn first_setting(&self, setting: &Setting) -> Result<Setting, StoreError> {
        let (project, name) = (&setting.project, &setting.name);
        if let Some(found) = self.setting(project, name).await? {
            return Ok(found);
        }
        let query = sql("INSERT INTO settings (project, name, value, changed_ms, who) \
             VALUES ($1, $2, $3, $4, $5) ON CONFLICT (project, name) DO NOTHING");
        let query = query.bind(project).bind(name).bind(&setting.value);
        self.change(query.bind(setting.changed).bind(&setting.who), None).await?;
        Ok(self.setting(project, name).await?.unwrap_or_else(|| setting.clone()))
    }

    /// Takes it away; false if there was none.
    pub async fn delete_setting(
        &self,
        project: &str,
        name: &str,
        audit: Option<&AuditEvent>,
    ) -> Result<bool, StoreError> {
        let query = sql("DELETE FROM settings WHERE project = $1 AND name = $2");
        Ok(self.change(query.bind(project).bind(name), audit).await? > 0)
    }
}

fn read(row: &Row) -> Result<Setting, StoreError> {
    Ok(Setting {
        project: row.get("project")?,
        name: row.get("name")?,
        value: row.get("value")?,
        changed: Time(row.unsigned("changed_ms")?),
        who: row.get("who")?,
    })
}

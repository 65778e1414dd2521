-- How many calls an incident met, and which incidents a session met: an outage meets many sessions and
-- is one incident.
CREATE INDEX calls_by_incident ON calls (incident) WHERE incident IS NOT NULL;
CREATE INDEX calls_with_incident ON calls (session_number, incident) WHERE incident IS NOT NULL;

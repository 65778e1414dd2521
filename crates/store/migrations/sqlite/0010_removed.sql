-- When an operator removed an agent. Lists leave it out until it is used later than that; its history stays.
ALTER TABLE agents ADD COLUMN removed_ms BIGINT;

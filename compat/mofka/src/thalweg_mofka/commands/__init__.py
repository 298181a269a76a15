"""The commands that scripts around Mofka and Diaspora call."""

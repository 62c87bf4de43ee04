"""From benchmarked LLM serving configurations to a proved systemd service."""

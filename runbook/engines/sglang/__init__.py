"""SGLang: how it is launched, what each release can do, and the proof of what runs."""

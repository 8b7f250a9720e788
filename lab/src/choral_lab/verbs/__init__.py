"""The lab's verbs, `choral attack`, `choral audit` and `choral reproduce`: words in, text out."""

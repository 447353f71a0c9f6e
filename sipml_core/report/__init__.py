"""What a person looks at: tables, files, figures."""

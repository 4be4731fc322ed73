"""The commands of `smct`, one file each: `add` declares its options, and its work is imported when it runs."""

"""The commands of the reproduction, which `smct` finds through the entry points of this package."""

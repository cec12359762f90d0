package main

import "github.com/spf13/cobra"

// newTools are the hand tools.
func newTools() []*cobra.Command { return nil }

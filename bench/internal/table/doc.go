// Package table turns samples into the table that people read: medians with their spread, and ratios between arms.
package table

package main

import (
	"errors"

	"github.com/wherry-node/wherry/internal/config"
)

// openSimulated gives the node a runtime in memory and a machine that does not exist.
func (n *node) openSimulated(s *config.SimulatedNode) error {
	return errors.New("the simulated runtime is not wired yet")
}

package program_test

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/wherry-node/wherry/internal/proof/program"
)

func TestAProgramRunsWhileOthersStart(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 20 {
				path := filepath.Join(dir, strconv.Itoa(i)+"-"+strconv.Itoa(j))
				program.Write(t, path, []byte("#!/bin/sh\nexit 0\n"))
				if err := exec.CommandContext(t.Context(), path).Run(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

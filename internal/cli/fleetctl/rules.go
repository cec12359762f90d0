package fleetctl

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/agent/simulated"
)

// readRules reads rules from files; nil: there are no files. sum is a checksum of these files, and of others that they name.
func readRules(names []string) (rules *simulated.Rules, sum string, err error) {
	files, err := RuleFiles(names)
	if err != nil || len(files) == 0 {
		return nil, "", err
	}
	h := sha256.New()
	for i := range files {
		_, _ = h.Write(files[i].Data) // the method never fails
		readOther := files[i].Read
		files[i].Read = func(other string) ([]byte, error) {
			data, err := readOther(other)
			_, _ = h.Write(data)
			return data, err
		}
	}
	rules, err = simulated.ParseRules(files...)
	return rules, hex.EncodeToString(h.Sum(nil)), err
}

// RuleFiles reads files of rules. Other files that they name are relative to their directories.
func RuleFiles(names []string) ([]simulated.RulesFile, error) {
	var files []simulated.RulesFile
	var errs []error
	for _, name := range names {
		data, err := readBounded(name, fleet.MaxTemplate)
		if err != nil {
			errs = append(errs, fmt.Errorf("--rules: %w", err))
			continue
		}
		files = append(files, simulated.RulesFile{Name: name, Data: data, Read: func(other string) ([]byte, error) {
			if !filepath.IsAbs(other) {
				other = filepath.Join(filepath.Dir(name), other)
			}
			return readBounded(other, fleet.MaxTemplate)
		}})
	}
	return files, errors.Join(errs...)
}

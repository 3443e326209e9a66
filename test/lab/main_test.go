// SPDX-License-Identifier: Apache-2.0

// Package lab contains the end-to-end tests of lklrun lab and of pkg/lab, all as an
// ordinary user.
package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// examples is the name of the program with the examples of pkg/lab.
const examples = "pkglab.test"

func TestMain(m *testing.M) {
	kit.EndToEnd(m, kit.GoProgram("http3", "./test/programs/http3"), func(root string) error {
		cmd := exec.Command("go", "test", "-c", "-trimpath", "-o", filepath.Join(root, "build", "test", examples), "./pkg/lab")
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building the examples of pkg/lab: %w: %s", err, out)
		}
		return nil
	})
}

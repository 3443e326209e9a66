// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The examples and TestRecipe start labs, so they need the programs in bin/ and those that run
// on the nodes. Without them, the other tests run.
func TestMain(m *testing.M) {
	flag.Parse()
	bin := os.Getenv("LKLRUN_BIN")
	if bin == "" {
		bin, _ = filepath.Abs("../../bin") // fails only without a current directory
	}
	_ = os.Setenv("PATH", bin+":"+os.Getenv("PATH")) // the name is valid
	for _, program := range []string{"lklrun", "lklctl", "iperf3", "python3", "curl", "ping"} {
		if _, err := exec.LookPath(program); err != nil {
			fmt.Fprintf(os.Stderr, "the examples are skipped: %v\n", err)
			_ = flag.Set("test.skip", "^(Example|TestRecipe$)") // the flag exists
			break
		}
	}
	os.Exit(m.Run())
}

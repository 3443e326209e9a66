// SPDX-License-Identifier: Apache-2.0

// Command lklrun runs a program on a network stack of the user's choice.
package main

import (
	"os"
	"path/filepath"

	_ "github.com/lklrun/lklrun/internal/base/trap" // an app's seccomp filter traps calls
	"github.com/lklrun/lklrun/internal/run/oci"
)

func main() {
	args := os.Args[1:]
	if filepath.Base(os.Args[0]) == oci.Name {
		args = append([]string{ociVerb}, args...)
	}
	end := execute(args)
	end.Exit()
}

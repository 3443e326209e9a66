// SPDX-License-Identifier: Apache-2.0

// Command lklrun runs a program on a network stack of the user's choice.
package main

import (
	"os"
	"path/filepath"
	"regexp"

	_ "github.com/lklrun/lklrun/internal/base/seccomptrap" // an app's seccomp filter traps calls
	"github.com/lklrun/lklrun/internal/run/oci"
)

// ociVerb is the verb that lklrun has under the name lklrun-oci.
const ociVerb = "oci"

// nriVerb is the verb that lklrun has under the name of a plug-in, such as 50-lklrun.
const nriVerb = "nri"

var nriName = regexp.MustCompile(`^[0-9]{2}-lklrun$`)

func main() {
	args := os.Args[1:]
	switch name := filepath.Base(os.Args[0]); {
	case name == oci.Name:
		args = append([]string{ociVerb}, args...)
	case nriName.MatchString(name):
		args = append([]string{nriVerb}, args...)
	}
	end := execute(args)
	end.Exit()
}

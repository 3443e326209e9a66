// SPDX-License-Identifier: Apache-2.0

// Command lklrun runs a program on a network stack of the user's choice.
package main

import (
	"os"

	_ "github.com/lklrun/lklrun/internal/base/seccomptrap" // an app's seccomp filter traps calls
)

func main() {
	end := execute(os.Args[1:])
	end.Exit()
}

// SPDX-License-Identifier: Apache-2.0

// Command lklrun runs a program on a network stack of the user's choice.
package main

import "os"

func main() {
	end := execute(os.Args[1:])
	end.Exit()
}

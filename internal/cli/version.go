// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/lklrun/lklrun/internal/stack/ctlproto"
)

// Release is the version, or the commit of a build from source. The linker sets it: -X
// github.com/lklrun/lklrun/internal/cli.Release=1.2.3.
var Release = "development build"

// Version returns the output of a program's --version.
func Version(program string) string {
	return fmt.Sprintf("%s %s, control protocol %d", program, Release, ctlproto.CTL_VERSION)
}

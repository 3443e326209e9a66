// SPDX-License-Identifier: Apache-2.0

// Package docs contains the tests of the documentation: it runs the commands of README.md, of
// the tutorials and of the how-to pages, and renders the manual pages.
package docs

import (
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

func TestMain(m *testing.M) {
	kit.EndToEnd(m, kit.GoProgram("sudo", "./test/docs/sudo"))
}

// SPDX-License-Identifier: Apache-2.0

package cli

// Topic is a page of a program's help that belongs to no verb.
type Topic struct {
	Name  string // in lower case, with dashes
	Short string // for lists and the page's NAME section
	Text  string // at most 80 columns wide
}

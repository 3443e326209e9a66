// SPDX-License-Identifier: Apache-2.0

//go:build device

package config

import "errors"

// toASCII returns an error, because the tables of international names would make bundles 100 kB
// larger. With --device, the lklrun of the user's machine converts the names.
func toASCII(string) (string, error) {
	return "", errors.New("is an international name, which the lklrun of a bundle knows only in its ASCII form; write xn--NAME")
}

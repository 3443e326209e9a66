// SPDX-License-Identifier: Apache-2.0

//go:build !device

package config

import (
	"errors"

	"golang.org/x/net/idna"
)

// toASCII returns the form of an international name that name servers know (RFC 5891).
func toASCII(name string) (string, error) {
	ascii, err := idna.Lookup.ToASCII(name)
	if err != nil {
		return "", errors.New("is not a valid international name")
	}
	return ascii, nil
}

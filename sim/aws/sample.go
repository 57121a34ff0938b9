package aws

import (
	"bytes"
	_ "embed"
)

//go:embed estate/shop.json
var shop []byte

// Access to the account of Sample. They open nothing but the simulator.
const (
	SampleAccount   = "111122223333"
	SampleKeyID     = "AKIASHOP000000000001"
	SampleKeySecret = "shopSecretForTheSimulatorOnly0000000001"
	SampleRole      = "arn:aws:iam::111122223333:role/isobar"
	SampleRegion    = "us-east-1"
)

// Sample is a small shop: in us-east-1 a VPC with web, app and bastion machines, peered with a VPC of
// databases, and one machine in eu-west-1. Every machine has a group that is wide open inside.
func Sample() Estate {
	e, err := ParseEstate(bytes.NewReader(shop))
	if err != nil {
		panic(err) // the file is part of the program, and a test parses it
	}
	return e
}

// Package verdict has flows and what becomes of them as people ask and are told: ends and traffic
// as text, and answers as JSON. Commands and the console say the same by it.
package verdict

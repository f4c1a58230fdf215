"""What is asked of a broker that lets everybody in where no rule is found."""
